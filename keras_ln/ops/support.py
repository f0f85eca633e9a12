"""Whether a layer can run as one fused op, and if not, why."""

from typing import Any

from keras_ln.ops.activations import ACTIVATIONS, activation_name


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
    if cell.fused_op is None:
        return f"{type(cell).__name__} has no fused op."
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
