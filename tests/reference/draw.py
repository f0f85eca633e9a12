"""DRAW with attention, written pixel by pixel from Gregor et al. (2015)."""

import numpy as np

from reference.ln_lstm import lstm
from reference.sequence import sigmoid
from reference.wn_lstm import wn_lstm


def filterbank(parameters, height, width, size):
    """F_Y (size, height), F_X (size, width) and gamma of one image."""
    x, y, log_variance, log_stride, log_gamma = parameters
    centre_x = (width + 1) / 2 * (x + 1)
    centre_y = (height + 1) / 2 * (y + 1)
    stride = (max(width, height) - 1) / (size - 1) * np.exp(log_stride)
    filters = []
    for centre, length in ((centre_y, height), (centre_x, width)):
        matrix = np.zeros((size, length))
        for i in range(1, size + 1):
            mean = centre + (i - size / 2 - 0.5) * stride
            for a in range(1, length + 1):
                exponent = -((a - mean) ** 2) / (2 * np.exp(log_variance))
                matrix[i - 1, a - 1] = np.exp(exponent)
            matrix[i - 1] /= matrix[i - 1].sum()
        filters.append(matrix)
    return *filters, np.exp(log_gamma)


def read(image, parameters, size):
    """The patch (size, size) of one image (height, width)."""
    rows, columns, gamma = filterbank(parameters, *image.shape, size)
    return gamma * np.einsum("ih,hw,jw->ij", rows, image, columns)


def write(patch, parameters, height, width):
    """The image (height, width) that one patch (size, size) adds."""
    rows, columns, gamma = filterbank(parameters, height, width, len(patch))
    return np.einsum("ih,ij,jw->hw", rows, patch, columns) / gamma


def _step(norm, weights, x, states):
    x = x[None, None]
    states = [state[None] for state in states]
    if norm == "weight":
        states = wn_lstm(weights, x, states)[1]
    else:
        sites = ("state",) if norm == "layer" else ()
        states = lstm(weights, x, states, normalize=sites)[1]
    return [state[0] for state in states]


def bound(norm, weights, image, noise, read_size, write_size):
    """Reconstruction and divergence, in nats, and the canvas of one image.

    Args:
        norm: "none", "weight" or "layer".
        weights: of the parts `encoder`, `decoder` (as of the LSTMs), `mean`,
            `log_deviation`, `read_attention`, `write_attention` and `patch`
            (kernel and bias).
        image: (height, width), pixels 0 or 1.
        noise: (T, latent).
        read_size: the side of the patch that is read.
        write_size: the side of the patch that is written.
    """

    def dense(part, x):
        return x @ weights[part]["kernel"] + weights[part]["bias"]

    height, width = image.shape
    units = len(weights["mean"]["kernel"])
    canvas = np.zeros((height, width))
    encoder = [np.zeros(units), np.zeros(units)]
    decoder = [np.zeros(units), np.zeros(units)]
    divergence = 0.0
    for epsilon in noise:
        attention = dense("read_attention", decoder[0])
        missing = image - sigmoid(canvas)
        seen = [
            read(x, attention, read_size).reshape(-1) for x in (image, missing)
        ]
        x = np.concatenate([*seen, decoder[0]])
        encoder = _step(norm, weights["encoder"], x, encoder)
        mean = dense("mean", encoder[0])
        deviation = np.exp(dense("log_deviation", encoder[0]))
        for m, s in zip(mean, deviation, strict=True):
            divergence += (m**2 + s**2 - np.log(s**2)) / 2 - 1 / 2
        latent = mean + deviation * epsilon
        decoder = _step(norm, weights["decoder"], latent, decoder)
        patch = dense("patch", decoder[0]).reshape(write_size, write_size)
        attention = dense("write_attention", decoder[0])
        canvas = canvas + write(patch, attention, height, width)
    p = sigmoid(canvas)
    likelihood = np.sum(image * np.log(p) + (1 - image) * np.log(1 - p))
    return -likelihood, divergence, canvas
