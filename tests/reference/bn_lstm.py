"""The LSTM with batch statistics of each time step."""

import numpy as np

from reference.norms import (
    ROUNDOFF,
    affine,
    batch_statistics,
    moving_average,
    standardize,
)
from reference.sequence import dropped, run, sigmoid

SITES = ("kernel", "recurrent", "state")


def bn_lstm(
    weights,
    x,
    states,
    *,
    training,
    normalize=SITES,
    epsilon=1e-5,
    momentum=0.99,
    dropout_mask=None,
    recurrent_dropout_mask=None,
    activation=np.tanh,
    recurrent_activation=sigmoid,
    first_step=0,
    **options,
):
    """Gates i, f, c, o; step k, in processing order, has its own statistics.

        [i f g o] = BN_k(h R) + BN_k(x W) + bias
        c'        = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h'        = sigmoid(o) * tanh(BN_k(c'))

    weights: kernel (D, 4U), recurrent_kernel (U, 4U), bias (4U),
    {kernel,recurrent}_gamma (4U), state_{gamma,beta} (U), and
    {site}_moving_{mean,variance} (max_steps, 4U or U). Training uses the
    statistics of the batch's valid rows, inference the moving ones, of the
    last row beyond max_steps. The first step has those of `first_step`.

    Returns y (B, T, U), [h, c], the statistics per site as (means,
    variances), and the moving statistics after the call, by weight name.
    """
    moving = {
        name: value.copy()
        for name, value in weights.items()
        if "_moving_" in name
    }
    used = {site: ([], []) for site in normalize}

    def normalized(z, site, k, valid):
        if site not in normalize:
            return z
        names = [f"{site}_moving_{kind}" for kind in ("mean", "variance")]
        if training:
            statistics = batch_statistics(z, valid)
            if all(name in moving for name in names) and valid.any():
                update(names, statistics, k)
        else:
            statistics = [
                weights[name][min(k, len(weights[name]) - 1)] for name in names
            ]
        for series, statistic in zip(used[site], statistics, strict=True):
            series.append(statistic)
        gamma, beta = weights[f"{site}_gamma"], weights.get(f"{site}_beta")
        # Moving statistics are not those of z.
        roundoff = ROUNDOFF if training else None
        return standardize(z, *statistics, gamma, beta, epsilon, roundoff)

    def update(names, statistics, k):
        for name, statistic in zip(names, statistics, strict=True):
            if k < len(moving[name]):
                moving[name][k] = moving_average(
                    moving[name][k], np.real(statistic), momentum
                )

    def step(x_t, states, k, valid):
        k = k + first_step
        h, c = states
        from_x = dropped(x_t, dropout_mask) @ weights["kernel"]
        from_h = dropped(h, recurrent_dropout_mask)
        from_h = from_h @ weights["recurrent_kernel"]
        z = normalized(from_h, "recurrent", k, valid)
        z = z + normalized(from_x, "kernel", k, valid)
        z = affine(z, None, weights.get("bias"))
        i, f, g, o = np.split(z, 4, axis=1)
        c = recurrent_activation(f) * c
        c = c + recurrent_activation(i) * activation(g)
        shown = activation(normalized(c, "state", k, valid))
        return [recurrent_activation(o) * shown, c]

    y, final = run(step, x, states, **options)
    statistics = {
        site: tuple(np.stack(series) for series in both)
        for site, both in used.items()
    }
    return y, final, statistics, moving
