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
    own = problem.own
    if own is None:
        return None
    # A step of a Keras cell returns no statistics.
    keeps = problem.plan.cell.gives_statistics
    for name in own.methods:
        if keeps or name not in ("project", "step"):
            return (
                f"{own.name} overrides `{name}`, which {problem.owner} does "
                "not run: its own loop computes all steps from the cell's "
                f"weights. Use keras.layers.RNN({own.name}(...)), which calls "
                "the cell at every step."
            )
    return None


def run(problem: Problem) -> Any:
    """`(outputs, final_states, statistics)`, as `forward` gives them."""
    known = problem.sequences.shape[1] is not None
    results, _ = forward(
        problem.plan,
        *problem.tensors,
        unroll=problem.unroll or (known and asks_for_unrolled_loops()),
        own_cell=None if problem.own is None else problem.own.cell,
    )
    return results
