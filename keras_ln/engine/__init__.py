"""A cell over time: arrays by name, one door, a table of implementations."""

from keras_ln import backend
from keras_ln.engine.bind import (
    array,
    in_order,
    refuse_reset_state,
)
from keras_ln.engine.cpu import kernels
from keras_ln.engine.dispatch import (
    check,
    check_states,
    choose,
    chosen,
    implementation,
    run,
    unsupported_reason,
)
from keras_ln.engine.gpu import gpu_kernels

# For `analysis`, which may not import the backend.
scan = backend.scan
# Where programs run, and whether they are written to a file.
on_cpu, is_exported = backend.on_cpu, backend.is_exported

__all__ = [
    "array",
    "check",
    "check_states",
    "choose",
    "chosen",
    "gpu_kernels",
    "implementation",
    "in_order",
    "is_exported",
    "kernels",
    "on_cpu",
    "refuse_reset_state",
    "run",
    "scan",
    "unsupported_reason",
]
