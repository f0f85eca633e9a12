"""The child of the check of GPU kernels, on the emulated driver."""

import sys

import gpu_emulation
import pytest

from keras_ln.gpu import child

if __name__ == "__main__":
    library, problems = sys.argv[1:]
    with pytest.MonkeyPatch.context() as patch:
        gpu_emulation.use(patch, library=library)
        child.main(problems)
