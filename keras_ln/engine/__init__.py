"""A cell over time: arrays by name, one entry, a table of implementations."""

from keras_ln import backend
from keras_ln.engine.cpu import kernels
from keras_ln.engine.dispatch import (
    chosen,
    implementation,
    run,
    unsupported_reason,
)
from keras_ln.engine.gpu import gpu_kernels
from keras_ln.engine.portable import fused_lstms

litert = backend.litert
# For `analysis`, which may not import the backend.
jacobian, scan = backend.jacobian, backend.scan
# Where programs run, and whether they are written to a file.
on_cpu, is_exported = backend.on_cpu, backend.is_exported

__all__ = [
    "chosen",
    "fused_lstms",
    "gpu_kernels",
    "implementation",
    "is_exported",
    "jacobian",
    "kernels",
    "litert",
    "on_cpu",
    "run",
    "scan",
    "unsupported_reason",
]
