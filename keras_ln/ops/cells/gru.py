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

from keras_ln import backend
from keras_ln.engine.dtypes import widen
from keras_ln.engine.spec import Cell, Spec, Vector
from keras_ln.ops.norms.cell_norms import LayerNorms
from keras_ln.ops.public import (
    Options,
    StepOptions,
    one_step,
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
    sites, beside, shown = _sites(x_product, h_product, spec, norms, {})
    z, _, candidate = _gates(beside, shown, spec)
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
    sites, beside, shown = _sites(x_product, h_product, spec, norms, factors)
    z, r, candidate = _gates(beside, shown, spec)
    gate_derivative = spec.recurrent_activation.derivative
    d_sum = dh * z * spec.activation.derivative(candidate)
    d_z = dh * (candidate - h) * gate_derivative(z)
    d_r = d_sum * shown[:, -h.shape[-1] :] * gate_derivative(r)
    dy_h = keras.ops.concatenate([d_z, d_r, d_sum * r], axis=-1)
    if spec.summed:
        (total,) = sites
        d_total, d_vectors = total.vjp(dy_h)
        for name, d in (("bias", dy_h), ("sum_bias", d_total)):
            if name in norms.weights:
                d_vectors[name] = backend.sum(d, 0)
        return d_total, d_total, (dh * (1.0 - z),), d_vectors
    kernel, recurrent = sites
    dy_x = keras.ops.concatenate([d_z, d_r, d_sum], axis=-1)
    d_x_product, d_vectors = kernel.vjp(dy_x)
    d_h_product, more = recurrent.vjp(dy_h)
    d_vectors |= more
    if "bias" in norms.weights:
        d_vectors["bias"] = backend.sum(dy_x, 0)
    if "recurrent_bias" in norms.weights:
        d_vectors["recurrent_bias"] = backend.sum(dy_h, 0)
    return d_x_product, d_h_product, (dh * (1.0 - z),), d_vectors


def _sites(
    x_product: Any,
    h_product: Any,
    spec: Spec,
    norms: LayerNorms,
    factors: Any,
) -> tuple[list[Any], Any, Any]:
    """The sites, and two values (B, 3U) with their biases.

    The reset gate multiplies the candidate's part of the second one. The first
    is None where the sum of both products is one site.
    """
    if spec.summed:
        z = _biased(x_product + h_product, "sum_bias", norms)
        total = norms.site("sum", z, factors.get("sum"))
        return [total], None, _biased(total.value, "bias", norms)
    kernel = norms.site("kernel", x_product, factors.get("kernel"))
    recurrent = norms.site("recurrent", h_product, factors.get("recurrent"))
    return (
        [kernel, recurrent],
        _biased(kernel.value, "bias", norms),
        _biased(recurrent.value, "recurrent_bias", norms),
    )


def _gates(beside: Any, shown: Any, spec: Spec) -> tuple[Any, Any, Any]:
    """z, r and the candidate (B, U), from the values of `_sites`."""
    split = shown.shape[-1] // 3 * 2
    gates, candidate = shown[..., :split], shown[..., split:]
    if beside is not None:
        gates = gates + beside[..., :split]
    z, r = keras.ops.split(
        spec.recurrent_activation.function(gates), 2, axis=-1
    )
    candidate = r * candidate
    if beside is not None:
        candidate = beside[..., split:] + candidate
    return z, r, spec.activation.function(candidate)


def _biased(value: Any, name: str, norms: LayerNorms) -> Any:
    """`value` (B, 3U) plus the bias of that name, if there is one."""
    bias = norms.weights.get(name)
    return value if bias is None else value + widen(bias)


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
    native_name="gru",
)


def _run(*tensors, **options):
    """`ln_gru`, and one step of it, with the options of `over_time`."""
    *_, weights = tensors
    options["summed"] = "sum_gamma" in weights
    return over_time(LN_GRU, *tensors, owner="ln_gru", **options)[:3]


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
    return _run(
        sequences,
        initial_states,
        weights,
        activation=activation,
        recurrent_activation=recurrent_activation,
        epsilon=epsilon,
        groups=groups,
        **options,
    )


@step_op(ln_gru)
def ln_gru_step(
    inputs: Any,
    states: Any,
    weights: dict[str, Any],
    **options: Unpack[StepOptions],
) -> tuple[Any, Any]:
    """One step of `ln_gru`, with its equations, options and errors.

    {step}

    >>> import keras
    >>> ones = keras.ops.ones
    >>> weights = {"kernel": ones((3, 12)), "recurrent_kernel": ones((4, 12))}
    >>> h, states = ln_gru_step(ones((2, 3)), None, weights)
    >>> tuple(h.shape), len(states)
    ((2, 4), 1)
    """
    return one_step(_run, inputs, states, weights, **options)
