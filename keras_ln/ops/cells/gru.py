"""The layer-normalised GRU (Ba, Kiros and Hinton 2016, eq. 26-28).

Letters: B batch, T time, D input features, U units. Columns are in the order z
(update gate), r (reset gate), h (candidate). `weights` maps names to tensors; a
site is normalised if its gamma is among them, the 2U gates separately from the
U candidates. `gru_step_vjp` is the gradient of one step; the backward loop and
the gradients of the kernels are in `engine/vjp.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

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


def gru_step(
    x_product: Any,  # x W (B, 3U), in at least float32, like all below
    h_product: Any,  # h R (B, 3U)
    states: tuple[Any],  # h (B, U)
    spec: Spec,
    norms: LayerNorms,
) -> tuple[tuple[Any], Any]:
    """The new h (B, U), and the statistics of the sites."""
    (h,) = states
    sites, z, *_, candidate = _values(x_product, h_product, norms, {})
    statistics = {site.name: site.statistics for site in sites}
    # Unlike in Keras' GRU, z = 1 takes the candidate.
    return ((1.0 - z) * h + z * candidate,), statistics


def gru_step_vjp(
    x_product: Any,
    h_product: Any,
    states: tuple[Any],
    spec: Spec,
    norms: LayerNorms,
    factors: Any,  # by site, from `LayerNorms.factors`
    cotangents: tuple[Any],  # of the new h (B, U)
) -> tuple[Any, Any, tuple[Any], dict[str, Any]]:
    """Gradients of x W, h R, the state, and the vectors by name."""
    (h,), (dh,) = states, cotangents
    values = _values(x_product, h_product, norms, factors)
    sites, z, r, shown, candidate = values
    gate_vjp = spec.recurrent_activation.vjp
    d_sum = spec.activation.vjp(dh * z, candidate)
    d_z = gate_vjp(dh * (candidate - h), z)
    d_r = gate_vjp(d_sum * shown, r)
    # Of N(h R) or the sum, and of N(x W).
    dy = [keras.ops.concatenate([d_z, d_r, d_sum * r], axis=-1)]
    if not spec.summed:
        dy.insert(0, keras.ops.concatenate([d_z, d_r, d_sum], axis=-1))
    d_products, d_vectors = sites_vjp(sites, dy)
    return *d_products, (dh * (1.0 - z),), d_vectors


def _values(
    x_product: Any, h_product: Any, norms: LayerNorms, factors: dict[str, Any]
) -> tuple[Any, ...]:
    """The sites, z, r, what r multiplies, and the candidate."""
    spec, sites = norms.spec, norms.sites(x_product, h_product, factors)

    def gates() -> tuple[Any, ...]:
        # Without N(x W) where the sum of both products is one site.
        *beside, shown = [site.value for site in sites]
        split = shown.shape[-1] // 3 * 2
        both = sum_of([shown[..., :split], *(v[..., :split] for v in beside)])
        shown = shown[..., split:]
        function = spec.recurrent_activation.function
        z, r = keras.ops.split(function(both), 2, axis=-1)
        candidate = sum_of([r * shown, *(v[..., split:] for v in beside)])
        return z, r, shown, spec.activation.function(candidate)

    return sites, *norms.once(("z", "r", "shown", "candidate"), gates)


LN_GRU = Cell(
    gru_step,
    gru_step_vjp,
    LayerNorms,
    gates=3,
    states={"h": "P"},
    vectors=(
        Vector("bias", 3),
        Vector("recurrent_bias", 3),
        Vector("kernel_gamma", 3, "kernel"),
        Vector("kernel_beta", 3, "kernel", redundant=True),
        Vector("recurrent_gamma", 3, "recurrent"),
        Vector("recurrent_beta", 3, "recurrent", redundant=True),
        # Of the site that replaces "kernel" and "recurrent".
        Vector("sum_gamma", 3, "sum"),
        Vector("sum_beta", 3, "sum", redundant=True),
        Vector("sum_bias", 3, "sum"),
    ),
    options=(
        *("epsilon", "activation", "recurrent_activation"),
        *("groups", "summed"),
    ),
    segments={"paper": (2, 1), "gate": (1, 1, 1), "all": (3,)},
    fused_norms=FusedNorms,
    native_name="gru",
)


def _run(**arguments):
    """`ln_gru`, and one step of it, with the arguments of `over_time`."""
    arguments["summed"] = "sum_gamma" in arguments["weights"]
    return over_time(LN_GRU, owner="ln_gru", **arguments)[:3]


@sequence_op
def ln_gru(
    sequences: Any,
    initial_states: Any,
    weights: dict[str, Any],
    *,
    activation: Any = "tanh",
    recurrent_activation: Any = "sigmoid",
    epsilon: float = 1e-5,
    groups: str = "paper",
    **options: Unpack[Options],
) -> tuple[Any, Any, tuple[Any]]:
    """Runs a layer-normalised GRU over sequences, as one compiled op.

    With `LN(a; g, b) = g * (a - mean(a)) / sqrt(var(a) + epsilon) + b`, whose
    statistics are taken in each row over the 2U gates or the U candidates:

        [a_zr a_h] = [LN(x W_zr) LN(x W_h)] + bias
        [d_zr d_h] = [LN(h R_zr) LN(h R_h)] + recurrent_bias
        [z r] = a_zr + d_zr
        h~    = tanh(a_h + sigmoid(r) * d_h)
        h'    = (1 - sigmoid(z)) * h + sigmoid(z) * h~

    With sum_gamma instead, one normalisation of the 3U sums is
    `[z r a_h] = LN(x W + h R + sum_bias) + bias` and
    `h~ = tanh(sigmoid(r) * a_h)`.

    Unlike in Keras' GRU, an update gate of 1 takes the candidate. The gradients
    of sequences, state and weights are hand-written.

    Args:
        sequences: floating-point tensor (B, T, D).
        initial_states: h (B, U), or a tuple of it; None for zeros.
        weights: kernel (D, 3U), recurrent_kernel (U, 3U), and any of bias,
            recurrent_bias, kernel_gamma, kernel_beta, recurrent_gamma and
            recurrent_beta (3U), or in place of the last five sum_gamma,
            sum_beta and sum_bias (3U). Columns are in the order z, r, h. The
            kernels are cast to the dtype of the sequences.
        {arguments}

    {returns}

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 26-28.

    >>> import keras
    >>> ones = keras.ops.ones
    >>> weights = {
    ...     "kernel": ones((3, 12)),
    ...     "recurrent_kernel": ones((4, 12)),
    ...     "kernel_gamma": ones(12),
    ... }
    >>> _, outputs, (h,) = ln_gru(ones((2, 7, 3)), None, weights)
    >>> tuple(outputs.shape), tuple(h.shape)
    ((2, 7, 4), (2, 4))
    """
    return _run(**of_call(ln_gru, locals()))


ln_gru_step = step_op(
    ln_gru, _run, '{"kernel": ones((3, 12)), "recurrent_kernel": ones((4, 12))}'
)
