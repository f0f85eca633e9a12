"""The layer-normalised simple RNN (Ba, Kiros and Hinton 2016, eq. 4).

Letters: B batch, T time, D input features, U units. `weights` maps names to
tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_ln.engine.spec import Cell, Spec, Vector
from keras_ln.ops.norms.cell_norms import LayerNorms, sites_vjp
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


def simple_rnn_step(
    x_product: Any,  # x W (B, U), in at least float32, like all below
    h_product: Any,  # h R (B, U)
    states: tuple[Any],  # h (B, U)
    spec: Spec,
    norms: LayerNorms,
) -> tuple[tuple[Any], Any]:
    """The new h (B, U), and the statistics of the sum."""
    (site,), y = _values(x_product, h_product, norms, {})
    return (y,), {site.name: site.statistics}


def simple_rnn_step_vjp(
    x_product: Any,
    h_product: Any,
    states: tuple[Any],
    spec: Spec,
    norms: LayerNorms,
    factors: Any,  # by site, from `LayerNorms.factors`
    cotangents: tuple[Any],  # of the new h (B, U)
) -> tuple[Any, Any, tuple[None], dict[str, Any]]:
    """Gradients of x W, h R, the state, and the vectors by name."""
    sites, y = _values(x_product, h_product, norms, factors)
    dy = spec.activation.vjp(cotangents[0], y)
    d_products, d_vectors = sites_vjp(sites, [dy])
    return *d_products, (None,), d_vectors


def _values(
    x_product: Any, h_product: Any, norms: LayerNorms, factors: Any
) -> tuple[Any, Any]:
    """The site of the sum, and the activation of its value."""
    function = norms.spec.activation.function
    site = norms.of_sum("", x_product, h_product, factors, inside="bias")
    return [site], norms.once("y", lambda: function(site.value))


LN_SIMPLE_RNN = Cell(
    simple_rnn_step,
    simple_rnn_step_vjp,
    LayerNorms,
    gates=1,
    states={"h": "P"},
    vectors=(Vector("bias", 1), Vector("gamma", 1, ""), Vector("beta", 1, "")),
    options=("epsilon", "activation"),
    segments={"paper": (1,)},
    fused_norms=FusedNorms,
    native_name="simple_rnn",
)


def _run(**arguments):
    """`ln_simple_rnn`, and a step of it, with the arguments of `over_time`."""
    return over_time(LN_SIMPLE_RNN, owner="ln_simple_rnn", **arguments)[:3]


@sequence_op
def ln_simple_rnn(
    sequences: Any,
    initial_states: Any,
    weights: dict[str, Any],
    *,
    activation: Any = "tanh",
    epsilon: float = 1e-5,
    **options: Unpack[Options],
) -> tuple[Any, Any, tuple[Any]]:
    """Runs a layer-normalised simple RNN over sequences, as one compiled op.

        a  = x W + h R + bias
        h' = f(gamma * (a - mean(a)) / sqrt(var(a) + epsilon) + beta)

    with mean and variance taken in each row. The gradients of sequences, state
    and weights are hand-written.

    Args:
        sequences: floating-point tensor (B, T, D).
        initial_states: h (B, U), or a tuple of it; None for zeros.
        weights: kernel (D, U), recurrent_kernel (U, U), and any of bias,
            gamma and beta (U). Without gamma nothing is normalised. The
            kernels are cast to the dtype of the sequences.
        {arguments}

    {returns}

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 4.

    >>> import keras
    >>> ones = keras.ops.ones
    >>> weights = {
    ...     "kernel": ones((3, 4)),
    ...     "recurrent_kernel": ones((4, 4)),
    ...     "gamma": ones(4),
    ... }
    >>> _, outputs, (h,) = ln_simple_rnn(ones((2, 7, 3)), None, weights)
    >>> tuple(outputs.shape), tuple(h.shape)
    ((2, 7, 4), (2, 4))
    """
    return _run(**of_call(ln_simple_rnn, locals()))


ln_simple_rnn_step = step_op(
    ln_simple_rnn,
    _run,
    '{"kernel": ones((3, 4)), "recurrent_kernel": ones((4, 4))}',
)
