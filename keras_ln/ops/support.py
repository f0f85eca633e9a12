"""Whether a layer can run as one fused op, and if not, why."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from keras_ln import backend
from keras_ln.ops.activations import ACTIVATIONS, activation_name

# None outside of `portable()`, else its `unroll`.
_portable: contextvars.ContextVar[bool | None] = contextvars.ContextVar(
    "portable", default=None
)
# One entry per `portable()` that is open, in whatever thread: torch.compile
# looks into a list, and not into a context variable.
_open: list[bool] = []


@contextlib.contextmanager
def portable(*, unroll: bool = False) -> Iterator[None]:
    """Models that are exported in here consist of ordinary operations.

    An exported TensorFlow model holds functions that XLA compiles where it is
    served. TensorFlow and TensorFlow Serving can; converters to ONNX cannot.
    Inside this context every layer is traced as operations that all runtimes
    know, a sequence layer as its cell loop. The numbers stay the same, up to
    rounding.

    Args:
        unroll: whether a sequence layer writes its steps out, as with
            `unroll=True`, wherever their number is known, by `keras.Input`
            or by the `input_signature` of the export. LiteRT needs it: it
            has no lists of tensors to loop over.

    >>> from keras_ln import LNLSTM, ops
    >>> with ops.portable():
    ...     print(ops.unsupported_reason(LNLSTM(4)))
    ops.portable() asks for ordinary operations.
    """
    token = _portable.set(unroll)
    _open.append(unroll)
    try:
        yield
    finally:
        _open.pop()
        _portable.reset(token)


def asks_for_portable_ops() -> bool:
    """Whether an op must do without XLA and hand-written gradients."""
    return bool(_open) and _portable.get() is not None


def needs_plain_ops() -> bool:
    """Whether what runs must be differentiated by the framework itself."""
    return backend.reads_python() or asks_for_portable_ops()


def asks_for_unrolled_loops() -> bool:
    """Whether loops over time must be written out, step by step."""
    return bool(_open) and _portable.get() is True


def overridden_methods(cell: Any) -> list[str]:
    """The methods of a step that come from a subclass of the op's cell."""
    classes = type(cell).__mro__

    def place(name: str) -> int:
        return next(k for k, c in enumerate(classes) if name in vars(c))

    names = ("call", "project", "settings", "step")
    return [name for name in names if place(name) < place("fused_op")]


def unsupported_reason(layer: Any) -> str | None:
    """Why `layer` cannot run as one fused op per sequence.

    Args:
        layer: a recurrent layer of keras_ln.

    Returns:
        None if it can, else a sentence that says what stands in the way.
    """
    cell = getattr(layer, "cell", None)
    if cell is None or not hasattr(cell, "fused_op"):
        return (
            f"Only recurrent layers of keras_ln have a fused op. Received: "
            f"{type(layer).__name__}."
        )
    if asks_for_portable_ops():
        return "ops.portable() asks for ordinary operations."
    if cell.fused_op is None:
        return f"{type(cell).__name__} has no fused op."
    if names := overridden_methods(cell):
        return (
            f"{type(cell).__name__} overrides {', '.join(names)}, which the "
            "op does not run."
        )
    if layer.unroll:
        return "unroll=True asks for steps that are written out one by one."
    for name in ("activation", "recurrent_activation"):
        activation = getattr(cell, name, None)
        if activation is not None and activation_name(activation) is None:
            return (
                f"`{name}` must be one of {', '.join(sorted(ACTIVATIONS))}. "
                f"Received: {name}={activation!r}."
            )
    return None
