"""A cell over time: one entry, a table of implementations, two scans."""

from keras_ln import backend
from keras_ln.ops.recurrence.api import Moving, run, run_problem, step
from keras_ln.ops.recurrence.checks import check_call, check_masks
from keras_ln.ops.recurrence.choice import (
    choose,
    implementation,
    unsupported_reason,
)
from keras_ln.ops.recurrence.native import kernels
from keras_ln.ops.recurrence.problem import problem_of
from keras_ln.ops.recurrence.zoneout import split_zoneout

# A loop over time for the package's outer parts.
scan = backend.scan

__all__ = [
    "Moving",
    "check_call",
    "check_masks",
    "choose",
    "implementation",
    "kernels",
    "problem_of",
    "run",
    "run_problem",
    "scan",
    "split_zoneout",
    "step",
    "unsupported_reason",
]
