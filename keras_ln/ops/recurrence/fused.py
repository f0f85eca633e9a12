"""One op per sequence: both scans, compiled, the gradient by hand."""

import functools
from typing import Any

from keras_ln import backend
from keras_ln.ops.activations import ACTIVATIONS
from keras_ln.ops.portable import asks_for_portable_ops
from keras_ln.ops.recurrence.forward import forward
from keras_ln.ops.recurrence.problem import Plan, Problem
from keras_ln.ops.recurrence.vjp import vjp


def reason(problem: Problem) -> str | None:
    """Why this implementation cannot run the problem, or None."""
    if backend.reads_python():
        return (
            "torch.compile and torch.export differentiate the Python code that "
            "they read, without a hand-written gradient."
        )
    return reason_of_any_gradient(problem)


def reason_of_any_gradient(problem: Problem) -> str | None:
    """Why no implementation with a gradient by hand can run it, or None."""
    if asks_for_portable_ops():
        return "ops.portable() asks for ordinary operations."
    differentiable = (problem.sequences, problem.states, problem.weights)
    wanted = backend.plain_operations_reason(
        None if problem.sequences is None else differentiable
    )
    if wanted is not None:
        return wanted
    if problem.own is not None:
        return (
            f"{problem.own.name} overrides {', '.join(problem.own.methods)}, "
            "which the op does not run."
        )
    if problem.unroll:
        return "unroll=True asks for an unrolled loop over time."
    for name in ("activation", "recurrent_activation"):
        activation = getattr(problem.plan.settings, name)
        if activation.derivative is None:
            return (
                f"`{name}` must be one of {', '.join(sorted(ACTIVATIONS))}. "
                f"Received: {name}={activation.function!r}."
            )
    return None


def run(problem: Problem) -> Any:
    """`(outputs, final_states, statistics)`, as `forward` gives them."""
    plan = problem.plan
    # On other devices the kernel launches of a step cost more than its
    # arithmetic.
    lean = not (backend.on_cpu() or plan.cell.gives_statistics)
    # XLA compiles for one T. Where T is unknown there are probably many, each
    # of which would cost a compilation.
    known = problem.sequences.shape[1] is not None
    run_op = _operation(plan, lean, known)
    return run_op(*problem.tensors, keep=problem.training, owner=problem.owner)


@functools.cache
def _operation(plan: Plan, lean: bool, compiled: bool) -> Any:
    whole = functools.partial(forward, plan, lean=lean)
    return backend.custom_vjp(
        functools.partial(whole, value_only=True) if lean else whole,
        functools.partial(vjp, plan, lean),
        whole if lean else None,
        compiled,
    )
