"""Distances of nearby models, and the metrics of gains and lengths."""

import numpy as np
import pytest
from arrays import close
from reference import generalized_linear as reference

from keras_ln.analysis import (
    fisher_information,
    gain_metric,
    kl_divergence,
    parameter_vector,
    projected_metric,
    riemannian_metric,
)

FAMILIES = {"gaussian": 0.7, "bernoulli": 1.0, "poisson": 1.0}
N, D, H = 9, 4, 3


def problem(normalization, seed=2):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, D)) + 0.5
    parameters = [0.5 * rng.normal(size=(D, H)), 0.3 * rng.normal(size=H)]
    if normalization is not None:
        parameters.append(0.7 + 0.2 * rng.normal(size=H))
    direction = [rng.normal(size=p.shape) for p in parameters]
    return x, tuple(parameters), direction


def moved(parameters, direction, size):
    return tuple(
        p + size * d for p, d in zip(parameters, direction, strict=True)
    )


@pytest.mark.parametrize("normalization", [None, "batch", "weight", "layer"])
@pytest.mark.parametrize("family", FAMILIES)
def test_divergence_is_the_textbook_one(family, normalization):
    x, parameters, direction = problem(normalization)
    other = moved(parameters, direction, 0.3)
    phi = FAMILIES[family]
    got = kl_divergence(family, x, parameters, other, normalization, phi=phi)
    means = [
        reference.MEANS[family](
            reference.eta(x, parameter_vector(p, normalization), normalization)
        )
        for p in (parameters, other)
    ]
    expected = reference.divergence(family, *means, phi).sum(1).mean()
    close(got, expected, rtol=1e-12)
    assert got > 0.01


@pytest.mark.parametrize("normalization", [None, "batch", "weight", "layer"])
@pytest.mark.parametrize("family", FAMILIES)
def test_divergence_is_the_metric_to_second_order(family, normalization):
    """|KL - 1/2 d^T F d| / |d|^2 for d halved again and again."""
    x, parameters, direction = problem(normalization)
    options = {"phi": FAMILIES[family]}
    fisher = fisher_information(
        family, x, parameters, normalization, method="exact", **options
    )
    sizes, errors = 0.01 / 2.0 ** np.arange(4), []
    for size in sizes:
        other = moved(parameters, direction, size)
        delta = size * parameter_vector(direction, normalization)
        kl = kl_divergence(
            family, x, parameters, other, normalization, **options
        )
        errors.append(abs(kl - riemannian_metric(fisher, delta)))
    if (family, normalization) == ("gaussian", None):
        # The divergence of the plain Gaussian is quadratic.
        assert max(errors) < 1e-13
        return
    orders = np.diff(np.log(errors)) / np.diff(np.log(sizes))
    # 3, with a correction of relative size |d|.
    assert orders.min() > 2.8


@pytest.mark.parametrize("method", ["paper", "exact"])
@pytest.mark.parametrize("normalization", ["batch", "weight", "layer"])
@pytest.mark.parametrize("family", FAMILIES)
def test_gain_metric_is_the_gain_block(family, normalization, method):
    """Of eq. 13, but for the factors that eq. 32 leaves out."""
    x, parameters, _ = problem(normalization)
    phi = FAMILIES[family]
    got = gain_metric(
        family, x, parameters, normalization, method=method, phi=phi
    )
    theta = parameter_vector(parameters, normalization)
    block = reference.fisher(family, x, theta, normalization, phi)
    block = block[D + 1 :: D + 2, D + 1 :: D + 2]
    if normalization == "batch" and method == "paper":
        eta = reference.eta(x, theta, normalization)
        variance = reference.VARIANCES[family](eta, phi) / phi**2
        close(got, np.diag(variance.mean(0)), rtol=1e-12)
        gap = np.abs(got - block).max()
        # E[(a - mu)^2 / sigma^2] = 1, where the variance is constant.
        assert gap < 1e-10 if family == "gaussian" else gap > 0.01
    else:
        close(got, block, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_projected_metric_is_eq_12_along_the_weights(family):
    x, (kernel, bias), _ = problem(None)
    phi = FAMILIES[family]
    got = projected_metric(family, x, (kernel, bias), phi=phi)
    fisher = fisher_information(family, x, (kernel, bias), phi=phi)
    directions = np.zeros((H, H, D + 1))
    for i in range(H):
        directions[i, i, :D] = kernel[:, i] / np.linalg.norm(kernel[:, i])
    directions = directions.reshape(H, -1)
    close(got, directions @ fisher @ directions.T, rtol=1e-12, atol=1e-14)


X, (W, B, G), _ = problem("layer")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: riemannian_metric(np.eye(3), [1.0]), r"\(3, 3\) and \(1,\)"),
        (lambda: riemannian_metric(np.eye(1), 1.0), r"`delta` a vector"),
        (
            lambda: gain_metric("poisson", X, (W, B, G), None),
            "`projected_metric` is the metric of the standard model",
        ),
        (
            lambda: gain_metric("poisson", X, (W, B, G), "layer", method=""),
            "`method` must be one of",
        ),
        (
            lambda: kl_divergence("poisson", X, (W, B), (W[:, :1], B[:1])),
            r"`other` must have the shapes.*\(4, 3\) and \(4, 1\)",
        ),
        (
            lambda: kl_divergence("gauss", X, (W, B), (W, B)),
            "`family` must be one of",
        ),
        (
            lambda: projected_metric("poisson", X, (0 * W, B)),
            "all zero and have no direction",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
