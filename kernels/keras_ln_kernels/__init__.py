"""Layer-normalised recurrent layers over whole sequences, on a CPU."""

from typing import TYPE_CHECKING, Any

from keras_ln_kernels.library import (
    instruction_set,
    release_scratch,
    unsupported_reason,
    use_instruction_set,
    use_sharing,
)
from keras_ln_kernels.version import __version__

if TYPE_CHECKING:
    from keras_ln_kernels.call import CELLS, Call, Sizes, options, run

__all__ = [
    "CELLS",
    "Call",
    "Sizes",
    "__version__",
    "instruction_set",
    "options",
    "release_scratch",
    "run",
    "unsupported_reason",
    "use_instruction_set",
    "use_sharing",
]


def __getattr__(name: str) -> Any:
    """The names that need the library; `unsupported_reason` must not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from keras_ln_kernels import call

    return getattr(call, name)
