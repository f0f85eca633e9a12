"""Layer, batch and weight normalisation of one array.

`gamma` and `beta` may be None. Nothing takes an absolute value and no
statistic uses `np.var`, which does for complex input: the complex step needs
analytic functions.
"""

import numpy as np

ROUNDOFF = 2.0**-53  # of float64


def layer_norm(z, gamma=None, beta=None, epsilon=1e-5, axis=-1, roundoff=None):
    """Layer normalisation; gamma and beta broadcast against z.

    For `roundoff` see `deviation`.
    """
    mean = z.mean(axis=axis, keepdims=True)
    variance = ((z - mean) ** 2).mean(axis=axis, keepdims=True)
    return standardize(z, mean, variance, gamma, beta, epsilon, roundoff)


def deviation(mean, variance, epsilon, roundoff):
    """sqrt(variance + epsilon).

    In a recurrent cell it is 1, a constant, where the deviation is at most 16
    unit roundoffs of the mean, so that a row of equal numbers is not scaled.
    """
    if roundoff is None:
        return np.sqrt(variance + epsilon)
    rounding = 16 * roundoff * np.real(mean)
    # Not the root: of a complex step's square the real part is negative.
    flat = np.real(variance) <= rounding * rounding
    return np.sqrt(np.where(flat, 1.0, variance + epsilon))


def affine(z, gamma, beta):
    """gamma * z + beta, either of which may be None."""
    if gamma is not None:
        z = z * gamma
    if beta is not None:
        z = z + beta
    return z


def batch_statistics(z, valid=None, unbiased=False):
    """Mean and variance over axis 0 of the rows of z (B, F) that are valid.

    Without a valid row both are zero: such a step changes no state.
    """
    if valid is not None:
        z = z[np.asarray(valid, bool)]
    n = len(z)
    if n == 0:
        return np.zeros_like(z.sum(0)), np.zeros_like(z.sum(0))
    mean = z.mean(0)
    return mean, ((z - mean) ** 2).sum(0) / (n - 1 if unbiased else n)


def standardize(
    z, mean, variance, gamma=None, beta=None, epsilon=1e-5, roundoff=None
):
    """Normalise z with the given statistics; for `roundoff` see `deviation`."""
    d = deviation(mean, variance, epsilon, roundoff)
    return affine((z - mean) / d, gamma, beta)


def batch_norm(
    z, gamma=None, beta=None, epsilon=1e-5, valid=None, unbiased=False
):
    """Batch normalisation of z (B, F) with its own statistics."""
    mean, variance = batch_statistics(z, valid, unbiased)
    return standardize(z, mean, variance, gamma, beta, epsilon)


def moving_average(moving, batch, momentum):
    """One update of an exponential moving average."""
    with np.errstate(invalid="ignore"):  # Of 0 times inf.
        return momentum * moving + (1.0 - momentum) * batch


def batch_norm_sequence(
    x,
    gamma=None,
    beta=None,
    epsilon=1e-5,
    mask=None,
    unbiased=False,
    sequence_wise=False,
):
    """Batch normalisation of x (B, T, F) by the statistics of each step.

    With `sequence_wise` one statistic is taken over all unmasked steps.
    Returns y, means (T, F), variances (T, F) and the valid rows per step (T,).
    """
    batch, steps, _ = x.shape
    mask = np.ones((batch, steps), bool) if mask is None else mask
    count = mask.sum(0)
    if sequence_wise:
        shared = batch_statistics(
            x.reshape(batch * steps, -1), mask.reshape(-1), unbiased
        )
        statistics = [shared] * steps
    else:
        statistics = [
            batch_statistics(x[:, t], mask[:, t], unbiased)
            for t in range(steps)
        ]
    means = np.stack([mean for mean, _ in statistics])
    variances = np.stack([variance for _, variance in statistics])
    y = standardize(x, means, variances, gamma, beta, epsilon)
    return y, means, variances, count


def weight_norm(v, g):
    """Columns of v (D, U), scaled to the lengths g (U)."""
    return g * v / np.sqrt((v * v).sum(0))


def weight_norm_dense(x, v, g, b=None):
    """x (..., D) times the weight-normalised v, plus the bias."""
    return affine(x @ weight_norm(v, g), None, b)
