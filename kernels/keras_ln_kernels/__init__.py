"""Layer-normalised recurrent layers over whole sequences, on a CPU."""

from keras_ln_kernels.call import Call, Sizes, run
from keras_ln_kernels.cells import CELLS
from keras_ln_kernels.library import (
    instruction_set,
    release_scratch,
    unsupported_reason,
    use_instruction_set,
    use_sharing,
)
from keras_ln_kernels.version import __version__

__all__ = [
    "CELLS",
    "Call",
    "Sizes",
    "__version__",
    "instruction_set",
    "release_scratch",
    "run",
    "unsupported_reason",
    "use_instruction_set",
    "use_sharing",
]
