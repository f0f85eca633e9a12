"""One op per sequence: both scans, compiled, the gradient by hand."""

import functools
from typing import Any

from keras_ln import backend
from keras_ln.ops.recurrence.forward import forward
from keras_ln.ops.recurrence.problem import Problem
from keras_ln.ops.recurrence.vjp import vjp

# What is compiled, by plan, `lean` and whether T is known.
_operations: dict[Any, Any] = {}


def reason(problem: Problem) -> str | None:
    """None: it runs whatever a gradient by hand can be used for."""
    return None


def run(problem: Problem) -> Any:
    """`(outputs, final_states, statistics)`, as `forward` gives them."""
    plan, tensors = problem.plan, problem.tensors
    # On other devices the kernel launches of a step cost more than its
    # arithmetic.
    lean = not (backend.on_cpu() or plan.cell.batch_statistics)
    # XLA compiles for one T. Where T is unknown there are probably many, each
    # of which would cost a compilation.
    known = tensors.sequences.shape[1] is not None
    key = (plan, lean, known)
    if key not in _operations:
        whole = functools.partial(forward, plan, lean=lean)
        first, reference = whole, None
        if lean:
            settings = plan.settings._replace(value_only=True)
            in_fewer_kernels = plan._replace(settings=settings)
            first = functools.partial(forward, in_fewer_kernels, lean=True)
            reference = whole
        gradient = functools.partial(vjp, plan, lean)
        _operations[key] = backend.custom_vjp(
            first, gradient, reference, compiled=known
        )
    run_op = _operations[key]
    return run_op(*tensors, keep=problem.training, owner=problem.owner)
