"""The scan forward in time alone, differentiated by the framework.

It runs what the others cannot: any activation, a step that a subclass has
overridden, unrolled loops, programs of ordinary operations, and
forward mode.
"""

from typing import Any

from keras_ln.ops.portable import asks_for_unrolled_loops
from keras_ln.ops.recurrence.forward import forward
from keras_ln.ops.recurrence.problem import Problem


def reason(problem: Problem) -> str | None:
    """Why this implementation cannot run the problem, or None."""
    overridden = problem.overridden
    if overridden is None:
        return None
    # A step of a Keras cell returns no statistics.
    needs_statistics = problem.plan.cell.batch_statistics
    for method in overridden.methods:
        if needs_statistics or method not in ("project", "step"):
            cell = overridden.name
            return (
                f"{cell} overrides `{method}`, which {problem.owner} does not "
                "run: its own loop computes all steps from the cell's weights. "
                f"Use keras.layers.RNN({cell}(...)), which calls the cell at "
                "every step."
            )
    return None


def run(problem: Problem) -> Any:
    """`(outputs, final_states, statistics)`, as `forward` gives them."""
    tensors, overridden = problem.tensors, problem.overridden
    known = tensors.sequences.shape[1] is not None
    results, _ = forward(
        problem.plan,
        *tensors,
        unroll=problem.unroll or (known and asks_for_unrolled_loops()),
        cell=None if overridden is None else overridden.cell,
    )
    return results
