"""Which implementation runs a recurrence, and why not the others."""

from types import ModuleType
from typing import Any

from keras_ln import backend
from keras_ln.ops.activations import ACTIVATIONS
from keras_ln.ops.portable import asks_for_portable_ops
from keras_ln.ops.recurrence import fused, loop, native
from keras_ln.ops.recurrence.problem import Problem

# In order of preference. Each has `reason(problem)`, why it cannot run what
# `_refusals` leaves to it or None, and `run(problem)`.
IMPLEMENTATIONS: dict[str, ModuleType] = {
    "native": native,
    "fused": fused,
    "loop": loop,
}


def choose(problem: Problem) -> str:
    """The name of the implementation that runs the problem.

    Raises:
        ValueError: where there is none.
    """
    refusals = _refusals(problem)
    for name, implementation in IMPLEMENTATIONS.items():
        if refusals[name] is None and implementation.reason(problem) is None:
            return name
    raise ValueError(
        loop.reason(problem)
        or f"use_fused=True, but {problem.owner} cannot run as one fused op: "
        f'{refusals["fused"]} Use use_fused="auto" to fall back to the cell '
        "loop."
    )


def _refusals(problem: Problem) -> dict[str, str | None]:
    """Why an implementation is not to run, before its own reason, or None."""
    by_hand = _no_gradient_by_hand(problem)
    by_autodiff = None
    if by_hand is None and problem.use_fused is False:
        by_hand = "use_fused=False asks for the cell loop."
    if problem.use_fused is True:
        by_autodiff = "use_fused=True asks for a hand-written gradient."
    compiler = None
    if backend.reads_python():
        compiler = (
            "torch.compile and torch.export differentiate the Python code that "
            "they read, without a hand-written gradient."
        )
    return {
        "native": by_hand,
        "fused": compiler or by_hand,
        "loop": by_autodiff,
    }


def _no_gradient_by_hand(problem: Problem) -> str | None:
    """Why the framework must differentiate the steps, or None."""
    if asks_for_portable_ops():
        return "ops.portable() asks for ordinary operations."
    # Sequences, states and weights.
    differentiable = problem.tensors and problem.tensors[:3]
    wanted = backend.plain_operations_reason(differentiable)
    if wanted is not None:
        return wanted
    if problem.overridden is not None:
        return (
            f"{problem.overridden.name} overrides "
            f"{', '.join(problem.overridden.methods)}, which the op does not "
            "run."
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


def implementation(layer: Any) -> tuple[str, dict[str, str]]:
    """Which implementation a recurrent layer would run, and why not others.

    - "native": one call of C++ per sequence and one for its gradient, on a CPU
      and where the package keras-ln-kernels is installed.
    - "fused": one op per sequence with a hand-written gradient, which XLA
      compiles on TensorFlow and JAX.
    - "loop": the cell's step over time, differentiated by the framework.

    `use_fused`, `unroll`, activations and overridden methods of the layer
    decide, `portable()`, whether torch.compile reads the program, and forward
    mode. Inside a `tf.autodiff.ForwardAccumulator`, `torch.func.jvp` or
    `jacfwd` the answer is "loop"; on TensorFlow, layers whose tensors the
    accumulator does not follow run as they do elsewhere. JAX does not tell its
    forward mode, which needs `use_fused=False`.

    Args:
        layer: a recurrent layer of keras_ln, built or not.

    Returns:
        `(name, {other: reason})`: the name, and for each of the others a
        sentence that says what stands in the way.

    Raises:
        ValueError: if the layer is another one, or nothing can run it as it
            asks for, for example with `use_fused=True` inside `portable()`.

    >>> from keras_ln import LNLSTM, ops
    >>> name, reasons = ops.implementation(LNLSTM(4, activation="relu"))
    >>> name, reasons["loop"]
    ('fused', 'fused comes before it, and can.')
    >>> name, reasons = ops.implementation(LNLSTM(4, unroll=True))
    >>> print(name, "because", reasons["fused"])
    loop because unroll=True asks for an unrolled loop over time.
    """
    if (reason := _not_ours(layer)) is not None:
        raise ValueError(
            f"Argument `layer` must be a recurrent layer. {reason}"
        )
    problem = layer.as_problem()
    chosen, refusals = choose(problem), _refusals(problem)
    return chosen, {
        name: refusals[name]
        or other.reason(problem)
        or f"{chosen} comes before it, and can."
        for name, other in IMPLEMENTATIONS.items()
        if name != chosen
    }


def unsupported_reason(layer: Any) -> str | None:
    """Why `layer` cannot run as one fused op per sequence.

    Args:
        layer: a recurrent layer of keras_ln.

    Returns:
        None if it can, else a sentence that says what stands in the way.
    """
    if (reason := _not_ours(layer)) is not None:
        return reason
    problem = layer.as_problem()._replace(use_fused="auto")
    return _refusals(problem)["fused"]


def _not_ours(layer: Any) -> str | None:
    if hasattr(layer, "as_problem"):
        return None
    return (
        f"Only recurrent layers of keras_ln have a fused op. Received: "
        f"{type(layer).__name__}."
    )
