"""The LSTM with weight-normalised kernels."""

from reference.ln_lstm import lstm
from reference.norms import weight_norm


def wn_lstm(weights, x, states, **options):
    """A plain LSTM whose kernels' columns are g * v / ||v||.

    weights: kernel (D, 4U), kernel_g (4U), recurrent_kernel (U, 4U),
    recurrent_g (4U), bias (4U), and projection_kernel as in `lstm`. Returns
    y (B, T, U) and [h, c].
    """
    plain = {
        "kernel": weight_norm(weights["kernel"], weights["kernel_g"]),
        "recurrent_kernel": weight_norm(
            weights["recurrent_kernel"], weights["recurrent_g"]
        ),
    }
    for name in {"bias", "projection_kernel"} & weights.keys():
        plain[name] = weights[name]
    return lstm(plain, x, states, normalize=(), **options)
