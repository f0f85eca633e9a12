"""A cell over time: one entry, a table of implementations, two scans."""

from keras_ln.ops.recurrence.api import run, step
from keras_ln.ops.recurrence.choice import (
    choose,
    implementation,
    unsupported_reason,
)
from keras_ln.ops.recurrence.native import kernels
from keras_ln.ops.recurrence.problem import problem_of

__all__ = [
    "choose",
    "implementation",
    "kernels",
    "problem_of",
    "run",
    "step",
    "unsupported_reason",
]
