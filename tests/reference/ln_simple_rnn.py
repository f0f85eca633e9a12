"""The layer-normalised simple RNN."""

import numpy as np

from reference.norms import ROUNDOFF, affine, layer_norm
from reference.sequence import dropped, run


def simple_rnn(
    weights,
    x,
    states,
    *,
    epsilon=1e-5,
    roundoff=ROUNDOFF,
    dropout_mask=None,
    recurrent_dropout_mask=None,
    activation=np.tanh,
    **options,
):
    """h_t = f(LN(x_t W + h_{t-1} R + bias; gamma, beta)).

    weights: kernel (D, U), recurrent_kernel (U, U) and, optionally, gamma (U)
    with beta (U), and bias (U). Returns y (B, T, U) and [h].
    """

    def step(x_t, states, k, valid):
        (h,) = states
        z = dropped(x_t, dropout_mask) @ weights["kernel"]
        z = z + dropped(h, recurrent_dropout_mask) @ weights["recurrent_kernel"]
        z = affine(z, None, weights.get("bias"))
        if "gamma" in weights:
            gamma, beta = weights["gamma"], weights["beta"]
            z = layer_norm(z, gamma, beta, epsilon, roundoff=roundoff)
        return [activation(z)]

    return run(step, x, states, **options)
