"""The LSTM with normalised sites (Ba, Kiros and Hinton 2016, eq. 20-22).

    [i f c~ o] = N(h R) + N(x W) + bias, or N(x W + h R + sum_bias) + bias
    c' = f * c + i * c~;   h' = o * activation(N(c'))

The next step gets c', or N(c') with `carry_normalized_state`. N normalises at
the sites "recurrent", "kernel" and "state"; the cell's `norms` choose the axes.
`weights` maps names to tensors; a site is normalised if its gamma is among
them, so without any gamma this is the plain LSTM. Letters: B batch, T time, D
input features, U units. Gates are in the order i, f, c, o.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from keras_ln import backend
from keras_ln.engine.activations import ACTIVATIONS
from keras_ln.engine.dtypes import widen
from keras_ln.engine.spec import Cell, Spec, Vector
from keras_ln.ops.norms.cell_norms import LayerNorms, sites_vjp, sum_of
from keras_ln.ops.norms.fused_norms import FusedNorms
from keras_ln.ops.public import (
    Options,
    of_call,
    over_time,
    sequence_op,
    step_op,
)

if TYPE_CHECKING:  # In typing since Python 3.11.
    from typing_extensions import Unpack

SITES = ("kernel", "recurrent", "state")


def lstm_step(
    x_product: Any,  # x W (B, 4U), in at least float32, like all below
    h_product: Any,  # h R (B, 4U)
    states: tuple[Any, Any],  # h and c (B, U)
    spec: Spec,
    norms: LayerNorms,
) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """The new h and c (B, U), and the statistics of the sites."""
    values = _values(x_product, h_product, states, norms, {})
    sites, state, new_c, *_, o, y = values
    carried = state.value if spec.carry_normalized_state else new_c
    statistics = {site.name: site.statistics for site in [*sites, state]}
    return (o * y, carried), statistics


def lstm_step_vjp(
    x_product: Any,
    h_product: Any,
    states: tuple[Any, Any],
    spec: Spec,
    norms: LayerNorms,
    factors: dict[str, Any],  # by site, from `LayerNorms.factors`
    cotangents: tuple[Any, Any],  # of the new h and c (B, U)
) -> tuple[Any, Any, tuple[None, Any], dict[str, Any]]:
    """Gradients of x W, h R, the states, and the vectors by name."""
    (_, c), (dh, dc) = states, cotangents
    vjp, gate_vjp = spec.activation.vjp, spec.recurrent_activation.vjp
    values = _values(x_product, h_product, states, norms, factors)
    sites, state, _, i, f, candidate, o, y = values
    d_state_value = vjp(dh * o, y)
    if spec.carry_normalized_state:
        d_state_value, dc = d_state_value + dc, 0.0
    d_new_c, d_vectors = state.vjp(d_state_value)
    dc = dc + d_new_c
    dz = keras.ops.concatenate(
        [
            gate_vjp(dc * candidate, i),
            gate_vjp(dc * c, f),
            vjp(dc * i, candidate),
            gate_vjp(dh * y, o),
        ],
        axis=-1,
    )
    d_products, more = sites_vjp(sites, [dz] * len(sites))
    more |= {name: backend.sum(dz, 0) for name in _later(norms)}
    return *d_products, (None, dc * f), d_vectors | more


def _values(
    x_product: Any,
    h_product: Any,
    states: tuple[Any, Any],
    norms: LayerNorms,
    factors: dict[str, Any],
) -> tuple[Any, ...]:
    """The sites of the gates and of c', c', i, f, c~, o, activation(N(c'))."""
    (_, c), spec = states, norms.spec
    later = _later(norms)
    at_once = () if later else ("bias",)
    sites = norms.sites(x_product, h_product, factors, at_once)

    def gates() -> Any:
        z = sum_of(site.value for site in sites)
        return _gates(sum_of([z, *map(widen, later.values())]), spec)

    def new_state() -> Any:
        return norms.plus_product(f * c, i, candidate)

    i, f, candidate, o = norms.once(("i", "f", "candidate", "o"), gates)
    new_c = norms.once("state_z", new_state)
    state = norms.site("state", new_c, factors.get("state"))
    y = norms.once("y", lambda: spec.activation.function(state.value))
    return sites, state, new_c, i, f, candidate, o, y


def _later(norms: LayerNorms) -> dict[str, Any]:
    """The bias by name, if it is added to the sum of the sites.

    tensorflow.js 4.22 fails if a site adds a beta and the bias, because
    TensorFlow then adds both in one operation. test_formats.py notices.
    """
    if norms.spec.fused_norms or "bias" not in norms.weights:
        return {}
    return {"bias": norms.weights["bias"]}


def _gates(z: Any, spec: Spec) -> Any:
    """i, f, c~ and o (B, U) from their sum (B, 4U)."""
    activation, gate = spec.activation, spec.recurrent_activation
    if spec.fused_norms:
        # Two operations, though what gives i, f and o gives another for c~.
        i, f, _, o = keras.ops.split(gate.function(z), 4, axis=-1)
        start, end = z.shape[-1] // 2, z.shape[-1] // 4 * 3
        return i, f, activation.function(z[..., start:end]), o
    if (activation, gate) != (ACTIVATIONS["tanh"], ACTIVATIONS["sigmoid"]):
        i, f, candidate, o = keras.ops.split(z, 4, axis=-1)
        function = gate.function
        candidate = activation.function(candidate)
        return function(i), function(f), candidate, function(o)
    # sigmoid(z) = (1 + tanh(z / 2)) / 2: one pass over the whole vector is
    # faster than four over its quarters.
    # Not by `full`, for which torch waits for a GPU (Keras 3.15).
    one = keras.ops.ones((z.shape[-1] // 4,), dtype=z.dtype)
    half = 0.5 * one
    scale = keras.ops.concatenate([half, half, one, half])
    i, f, candidate, o = keras.ops.split(backend.tanh(z * scale), 4, axis=-1)
    return 0.5 * i + 0.5, 0.5 * f + 0.5, candidate, 0.5 * o + 0.5


OPTIONS = ("epsilon", "activation", "recurrent_activation")
LN_LSTM = Cell(
    lstm_step,
    lstm_step_vjp,
    LayerNorms,
    gates=4,
    states={"h": "P", "c": "U"},
    vectors=(
        Vector("bias", 4),
        Vector("kernel_gamma", 4, "kernel"),
        Vector("kernel_beta", 4, "kernel", redundant=True),
        Vector("recurrent_gamma", 4, "recurrent"),
        Vector("recurrent_beta", 4, "recurrent", redundant=True),
        Vector("state_gamma", 1, "state"),
        Vector("state_beta", 1, "state"),
        # Of the site that replaces "kernel" and "recurrent".
        Vector("sum_gamma", 4, "sum"),
        Vector("sum_beta", 4, "sum", redundant=True),
        Vector("sum_bias", 4, "sum"),
    ),
    options=(*OPTIONS, "carry_normalized_state", "groups", "summed"),
    segments={"paper": (4,), "gate": (1, 1, 1, 1), "all": (4,)},
    fused_norms=FusedNorms,
    native_name="lstm",
)


def _run(weights, carry_normalized_state=False, **arguments):
    """`ln_lstm`, and one step of it, with the arguments of `over_time`."""
    if carry_normalized_state and "state_gamma" not in weights:
        raise ValueError(
            "carry_normalized_state=True needs the weight state_gamma, which "
            "normalises c. Received: weights with "
            f"{', '.join(weights)}."
        )
    return over_time(
        LN_LSTM,
        weights=weights,
        carry_normalized_state=carry_normalized_state,
        summed="sum_gamma" in weights,
        owner="ln_lstm",
        **arguments,
    )[:3]


@sequence_op
def ln_lstm(
    sequences: Any,
    initial_states: Any,
    weights: dict[str, Any],
    *,
    activation: Any = "tanh",
    recurrent_activation: Any = "sigmoid",
    epsilon: float = 1e-5,
    carry_normalized_state: bool = False,
    cell_zoneout: Any = 0.0,
    groups: str = "paper",
    **options: Unpack[Options],
) -> tuple[Any, Any, tuple[Any, Any]]:
    """Runs a layer-normalised LSTM over sequences, as one compiled op.

    With `LN(z; g, b) = g * (z - mean(z)) / sqrt(var(z) + epsilon) + b`, whose
    statistics are taken in each row over the whole vector (the four gates
    together have 4U entries):

        [i f c~ o] = LN(h R; recurrent_gamma, recurrent_beta)
                   + LN(x W; kernel_gamma, kernel_beta) + bias
        c' = sigmoid(f) * c + sigmoid(i) * tanh(c~)
        h' = sigmoid(o) * tanh(LN(c'; state_gamma, state_beta))

    The gradients of sequences, states and weights are hand-written.

    Args:
        sequences: floating-point tensor (B, T, D).
        initial_states: h and c, tensors (B, U); None for zeros.
        weights: kernel (D, 4U), recurrent_kernel (U, 4U), and any of bias,
            kernel_gamma, kernel_beta, recurrent_gamma, recurrent_beta (4U),
            state_gamma and state_beta (U). Instead of the gammas and betas of
            kernel and recurrent, sum_gamma, sum_beta and sum_bias (4U)
            normalise x W + h R + sum_bias. Columns are in the order i, f, c, o.
            The kernels are cast to the dtype of the sequences.
        {arguments}

    {returns}

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 20-22.

    >>> import keras
    >>> ones = keras.ops.ones
    >>> weights = {
    ...     "kernel": ones((3, 16)),
    ...     "recurrent_kernel": ones((4, 16)),
    ...     "kernel_gamma": ones(16),
    ... }
    >>> last_output, outputs, (h, c) = ln_lstm(ones((2, 7, 3)), None, weights)
    >>> tuple(outputs.shape), tuple(c.shape)
    ((2, 7, 4), (2, 4))
    """
    return _run(**of_call(ln_lstm, locals()))


ln_lstm_step = step_op(
    ln_lstm,
    _run,
    '{"kernel": ones((3, 16)), "recurrent_kernel": ones((4, 16))}',
)
