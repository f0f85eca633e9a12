"""Layer-normalised recurrent layers over whole sequences, on a CPU."""

from keras_ln_kernels.call import Call, Sizes
from keras_ln_kernels.cells import CELLS
from keras_ln_kernels.library import (
    instruction_set,
    release_scratch,
    unsupported_reason,
    use_instruction_set,
)
from keras_ln_kernels.sequence import Sequence
from keras_ln_kernels.version import __version__

__all__ = [
    "CELLS",
    "Call",
    "Sequence",
    "Sizes",
    "__version__",
    "instruction_set",
    "release_scratch",
    "unsupported_reason",
    "use_instruction_set",
]
