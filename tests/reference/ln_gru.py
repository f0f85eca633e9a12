"""The layer-normalised GRU."""

import numpy as np

from reference.norms import ROUNDOFF, affine, layer_norm
from reference.sequence import dropped, run, sigmoid


def gru(
    weights,
    x,
    states,
    *,
    normalize=("kernel", "recurrent"),
    center=True,
    epsilon=1e-5,
    groups="paper",
    roundoff=ROUNDOFF,
    dropout_mask=None,
    recurrent_dropout_mask=None,
    activation=np.tanh,
    recurrent_activation=sigmoid,
    **options,
):
    """The update gate opens to the candidate.

        [z r] = LN_2U(h R_zr) + LN_2U(x W_zr)
        h^    = tanh(LN_U(x W_h) + sigmoid(r) * LN_U(h R_h))
        h'    = (1 - sigmoid(z)) * h + sigmoid(z) * h^

    weights: kernel (D, 3U), recurrent_kernel (U, 3U), and per site gamma and
    beta (3U), of which the first 2U belong to the gates; bias and
    recurrent_bias (3U) are added outside the normalisations, on the input side
    and to what the reset gate multiplies. The site "sum" is one normalisation
    of x W + h R + sum_bias, all of whose candidate r multiplies. Returns y
    (B, T, U) and [h].
    """
    units = weights["recurrent_kernel"].shape[0]
    gates, candidate = slice(0, 2 * units), slice(2 * units, 3 * units)

    thirds = [slice(k * units, (k + 1) * units) for k in range(3)]
    segments = {
        "paper": [gates, candidate],
        "gate": thirds,
        "all": [slice(None)],
    }["all" if "sum" in normalize and groups == "paper" else groups]

    def normalized(z, site):
        if site not in normalize:
            return z
        gamma = weights[f"{site}_gamma"]
        beta = weights[f"{site}_beta"] if center else np.zeros_like(gamma)
        parts = [
            layer_norm(
                z[:, part], gamma[part], beta[part], epsilon, roundoff=roundoff
            )
            for part in segments
        ]
        return np.concatenate(parts, axis=1)

    def step(x_t, states, k, valid):
        (h,) = states
        from_x = dropped(x_t, dropout_mask) @ weights["kernel"]
        from_h = dropped(h, recurrent_dropout_mask)
        from_h = from_h @ weights["recurrent_kernel"]
        if "sum" in normalize:
            a = affine(from_x + from_h, None, weights.get("sum_bias"))
            a = affine(normalized(a, "sum"), None, weights.get("bias"))
            z, r = np.split(recurrent_activation(a[:, gates]), 2, axis=1)
            return [(1.0 - z) * h + z * activation(r * a[:, candidate])]
        from_h = normalized(from_h, "recurrent")
        from_h = affine(from_h, None, weights.get("recurrent_bias"))
        from_x = affine(normalized(from_x, "kernel"), None, weights.get("bias"))
        z, r = np.split(
            recurrent_activation(from_x[:, gates] + from_h[:, gates]), 2, axis=1
        )
        proposal = activation(from_x[:, candidate] + r * from_h[:, candidate])
        return [(1.0 - z) * h + z * proposal]

    return run(step, x, states, **options)
