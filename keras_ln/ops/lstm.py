"""One time step of the LSTM with normalised sites, and its gradient.

    [i f c~ o] = N(h R) + N(x W) + bias
    c' = f * c + i * c~;   h' = o * activation(N(c'))

The next step gets c', or N(c') with `carry_normalized_state`. N normalises,
at the sites "recurrent", "kernel" and "state", over what the cell's `norms`
say. Letters: B batch, U units. Gates stand in the order i, f, c, o.
"""

from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.activations import ACTIVATIONS
from keras_ln.ops.cell import Settings
from keras_ln.ops.normalize import LayerNorms, widen

SITES = ("kernel", "recurrent", "state")


def lstm_step(
    from_x: Any,  # x W (B, 4U), in at least float32, like all below
    from_h: Any,  # h R (B, 4U)
    states: tuple[Any, Any],  # h and c (B, U)
    settings: Settings,
    norms: LayerNorms,
) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """The new h and c (B, U), and the statistics of the sites."""
    _, c = states
    kernel = norms.site("kernel", from_x)
    recurrent = norms.site("recurrent", from_h)
    i, f, candidate, o = _gates(kernel.value + recurrent.value, settings, norms)
    new_c = f * c + i * candidate
    state = norms.site("state", new_c)
    new_h = o * settings.activation.function(state.value)
    carried = state.value if settings.carry_normalized_state else new_c
    sites = (kernel, recurrent, state)
    return (new_h, carried), {site.name: site.statistics for site in sites}


def lstm_step_vjp(
    from_x: Any,
    from_h: Any,
    states: tuple[Any, Any],
    settings: Settings,
    norms: LayerNorms,
    factors: dict[str, Any],  # those of the norms, by site
    cotangents: tuple[Any, Any],  # of the new h and c (B, U)
) -> tuple[Any, Any, tuple[None, Any], dict[str, Any]]:
    """Gradients of from_x, from_h, the states, and the vectors by name."""
    (_, c), (dh, dc) = states, cotangents
    derivative = settings.activation.derivative
    gate_derivative = settings.recurrent_activation.derivative
    kernel = norms.site("kernel", from_x, factors.get("kernel"))
    recurrent = norms.site("recurrent", from_h, factors.get("recurrent"))
    i, f, candidate, o = _gates(kernel.value + recurrent.value, settings, norms)
    new_c = f * c + i * candidate
    state = norms.site("state", new_c, factors.get("state"))
    y = settings.activation.function(state.value)

    d_shown = dh * o * derivative(y)
    if settings.carry_normalized_state:
        d_shown, dc = d_shown + dc, 0.0
    d_new_c, d_vectors = state.vjp(d_shown)
    dc = dc + d_new_c
    dz = keras.ops.concatenate(
        [
            dc * candidate * gate_derivative(i),
            dc * c * gate_derivative(f),
            dc * i * derivative(candidate),
            dh * y * gate_derivative(o),
        ],
        axis=-1,
    )
    if "bias" in norms.weights:
        d_vectors["bias"] = backend.sum(dz, 0)
    d_from_x, more = kernel.vjp(dz)
    d_vectors |= more
    d_from_h, more = recurrent.vjp(dz)
    d_vectors |= more
    return d_from_x, d_from_h, (None, dc * f), d_vectors


def _gates(z: Any, settings: Settings, norms: LayerNorms) -> Any:
    """i, f, c~ and o (B, U) from their sum (B, 4U)."""
    if "bias" in norms.weights:
        z = z + widen(norms.weights["bias"])
    activation, gate = settings.activation, settings.recurrent_activation
    if (activation, gate) != (ACTIVATIONS["tanh"], ACTIVATIONS["sigmoid"]):
        i, f, candidate, o = keras.ops.split(z, 4, axis=-1)
        function = gate.function
        candidate = activation.function(candidate)
        return function(i), function(f), candidate, function(o)
    # sigmoid(z) = (1 + tanh(z / 2)) / 2: one pass over the whole vector is
    # faster than four over its quarters.
    half = keras.ops.full((z.shape[-1] // 4,), 0.5, dtype=z.dtype)
    scale = keras.ops.concatenate([half, half, 2.0 * half, half])
    i, f, candidate, o = keras.ops.split(backend.tanh(z * scale), 4, axis=-1)
    return 0.5 * i + 0.5, 0.5 * f + 0.5, candidate, 0.5 * o + 0.5
