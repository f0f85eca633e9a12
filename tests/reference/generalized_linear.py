"""Generalised linear models and finite differences, in NumPy float64.

Letters: N examples, D input features, H units, P parameters.
"""

import numpy as np
from scipy import special

MEANS = {"gaussian": lambda e: e, "bernoulli": special.expit, "poisson": np.exp}
VARIANCES = {
    "gaussian": lambda e, phi: phi + 0 * e,
    "bernoulli": lambda e, phi: special.expit(e) * special.expit(-e),
    "poisson": lambda e, phi: np.exp(e),
}


def eta(x, theta, normalization, epsilon=0.0):
    """(N, H) from theta (P): weights, bias and gain of a unit, then the next.

    Loops over units and examples, as the equations are written.
    """
    examples, features = x.shape
    size = features + (1 if normalization is None else 2)
    units = theta.reshape(-1, size)
    a = np.array([[row @ unit[:features] for unit in units] for row in x])
    if normalization == "batch":
        a = np.stack([_standardize(column, epsilon) for column in a.T], 1)
    elif normalization == "layer":
        a = np.stack([_standardize(row, epsilon) for row in a])
    elif normalization == "weight":
        a = a / [np.linalg.norm(unit[:features]) for unit in units]
    gain = 1.0 if normalization is None else units[:, -1]
    return gain * a + units[:, features]


def _standardize(values, epsilon):
    return (values - np.mean(values)) / np.sqrt(np.var(values) + epsilon)


def jacobian(function, theta, h=1e-3):
    """Central differences of sixth order: errors of h^6 and 1e-16 / h."""
    columns = []
    for k in range(len(theta)):
        step = h * np.eye(len(theta))[k]
        columns.append(
            sum(
                weight
                * (function(theta + i * step) - function(theta - i * step))
                for i, weight in ((1, 45.0), (2, -9.0), (3, 1.0))
            )
            / (60 * h)
        )
    return np.stack(columns, -1)


def fisher(family, x, theta, normalization, phi=1.0, epsilon=0.0):
    """E_x[J^T Cov[y | x] J] / phi^2, example by example."""
    j = jacobian(lambda t: eta(x, t, normalization, epsilon), theta)
    variance = VARIANCES[family](eta(x, theta, normalization, epsilon), phi)
    terms = [j[n].T @ np.diag(variance[n]) @ j[n] for n in range(len(x))]
    return np.mean(terms, 0) / phi**2


def divergence(family, mean, other, phi):
    """KL of the distributions with two means, from their textbook forms."""
    if family == "gaussian":
        return (mean - other) ** 2 / (2 * phi)
    if family == "bernoulli":
        return special.rel_entr(mean, other) + special.rel_entr(
            1 - mean, 1 - other
        )
    return mean * np.log(mean / other) - mean + other
