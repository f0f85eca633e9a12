"""A cell over time: arrays by name, one door, a table of implementations."""

from keras_ln import backend
from keras_ln.ops.recurrence.checks import (
    array,
    in_order,
    refuse_reset_state,
)
from keras_ln.ops.recurrence.cuda import gpu_kernels
from keras_ln.ops.recurrence.functions import (
    over_time,
    project,
    spec_of,
    split_zoneout,
    starts_backwards,
    step,
)
from keras_ln.ops.recurrence.native import kernels
from keras_ln.ops.recurrence.run import (
    check,
    check_states,
    choose,
    chosen,
    implementation,
    run,
    unsupported_reason,
)

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
    "over_time",
    "project",
    "refuse_reset_state",
    "run",
    "scan",
    "spec_of",
    "split_zoneout",
    "starts_backwards",
    "step",
    "unsupported_reason",
]
