"""The layer-normalised LSTM; without a site it is the plain one."""

import numpy as np

from reference.norms import ROUNDOFF, affine, layer_norm
from reference.sequence import dropped, run, sigmoid


def lstm(
    weights,
    x,
    states,
    *,
    normalize=("kernel", "recurrent", "state"),
    center=True,
    epsilon=1e-5,
    carry_normalized_state=False,
    groups="paper",
    roundoff=ROUNDOFF,
    dropout_mask=None,
    recurrent_dropout_mask=None,
    activation=np.tanh,
    recurrent_activation=sigmoid,
    **options,
):
    """Gates i, f, c, o; the carried c is not normalised, unless asked for.

        [i f g o] = LN(h R) + LN(x W) + bias
        c'        = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h'        = sigmoid(o) * tanh(LN(c'))

    weights: kernel (D, 4U), recurrent_kernel (U, 4U), bias (4U),
    {kernel,recurrent}_{gamma,beta} (4U), state_{gamma,beta} (U); those of
    absent sites are ignored, `center=False` ignores the betas of the kernels.
    With a projection_kernel (U, P), recurrent_kernel is (P, 4U) and h' is its
    product (B, P). Returns y (B, T, U) and [h, c].
    """

    def normalized(z, site):
        if site not in normalize:
            return z
        beta = None
        if center or site == "state":
            beta = weights[f"{site}_beta"]
        gamma = weights[f"{site}_gamma"]
        if groups == "gate" and site != "state":
            ones = [
                layer_norm(part, None, None, epsilon, roundoff=roundoff)
                for part in np.split(z, 4, axis=1)
            ]
            return affine(np.concatenate(ones, axis=1), gamma, beta)
        return layer_norm(z, gamma, beta, epsilon, roundoff=roundoff)

    def step(x_t, states, k, valid):
        h, c = states
        from_x = dropped(x_t, dropout_mask) @ weights["kernel"]
        from_h = dropped(h, recurrent_dropout_mask)
        from_h = from_h @ weights["recurrent_kernel"]
        z = normalized(from_h, "recurrent") + normalized(from_x, "kernel")
        z = affine(z, None, weights.get("sum_bias"))
        z = affine(normalized(z, "sum"), None, weights.get("bias"))
        i, f, g, o = np.split(z, 4, axis=1)
        c = recurrent_activation(f) * c
        c = c + recurrent_activation(i) * activation(g)
        shown = normalized(c, "state")
        h = recurrent_activation(o) * activation(shown)
        if "projection_kernel" in weights:
            h = h @ weights["projection_kernel"]
        return [h, shown if carry_normalized_state else c]

    return run(step, x, states, **options)
