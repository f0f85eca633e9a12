"""Exact gradients of the oracles by the complex step."""

import numpy as np

STEP = 1e-30  # (f(x + ih) - f(x)) / ih has no cancellation: h may be tiny


def inner(outputs, cotangents):
    """Sum over all outputs of sum(output * cotangent); None counts nothing."""
    return sum(
        (output * cotangent).sum()
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if cotangent is not None
    )


def complex_step(loss, arrays):
    """Gradient of the scalar `loss(arrays)` by every entry of every array.

    `loss` takes the dictionary `arrays`, must be analytic, and runs once per
    entry: keep the arrays small. Returns a dictionary with the same keys.
    """
    return {name: one_gradient(loss, arrays, name) for name in arrays}


def one_gradient(loss, arrays, name):
    """Gradient of `loss(arrays)` by arrays[name]."""
    gradient = np.empty(arrays[name].shape)
    for index in np.ndindex(gradient.shape):
        moved = arrays[name].astype(complex)
        moved[index] += 1j * STEP
        gradient[index] = loss({**arrays, name: moved}).imag / STEP
    return gradient
