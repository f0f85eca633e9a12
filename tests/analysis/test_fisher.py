"""Fisher information against finite differences, sampling and the paper."""

import itertools

import numpy as np
import pytest
from arrays import close
from reference import generalized_linear as reference

from keras_ln.analysis import fisher_information, parameter_vector

FAMILIES = {"gaussian": 0.7, "bernoulli": 1.0, "poisson": 1.0}
NORMALIZATIONS = (None, "batch", "weight", "layer")
N, D, H = 9, 4, 3

# Central differences are right to about 1e-13, and F is of order one.
DIFFERENCES = {"rtol": 1e-9, "atol": 1e-10}


def problem(normalization, dtype="float64", seed=1):
    """Data with a mean, and parameters (kernel, bias[, gain])."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, D)) + 0.5
    parameters = [rng.normal(size=(D, H)), 0.3 * rng.normal(size=H)]
    if normalization is None:
        parameters[0] *= 0.4  # keeps the mean of a Poisson in bounds
    else:
        parameters.append(0.7 + 0.2 * rng.normal(size=H))
    return x.astype(dtype), tuple(p.astype(dtype) for p in parameters)


def blocks(fisher):
    """(H, K, H, K)."""
    return fisher.reshape(H, len(fisher) // H, H, -1)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_exact_is_the_reference(family, normalization, epsilon):
    x, parameters = problem(normalization)
    theta = parameter_vector(parameters, normalization)
    got = fisher_information(
        family,
        x,
        parameters,
        normalization,
        method="exact",
        phi=FAMILIES[family],
        epsilon=epsilon,
    )
    expected = reference.fisher(
        family, x, theta, normalization, FAMILIES[family], epsilon
    )
    close(got, expected, **DIFFERENCES)
    assert np.abs(expected).max() > 0.1


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("normalization", [None, "batch", "weight"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_paper_is_exact_but_for_layer(family, normalization, epsilon):
    """Every block of eq. 12 to 14."""
    x, parameters = problem(normalization)
    theta = parameter_vector(parameters, normalization)
    options = {"phi": FAMILIES[family], "epsilon": epsilon}
    got = fisher_information(family, x, parameters, normalization, **options)
    expected = reference.fisher(family, x, theta, normalization, **options)
    for i, j in itertools.product(range(H), range(H)):
        close(blocks(got)[i, :, j], blocks(expected)[i, :, j], **DIFFERENCES)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gap_of_layer_normalization(family):
    """It is what eq. 13 leaves out: the other units' outputs."""
    x, parameters = problem("layer")
    kernel, _, gain = parameters
    phi = FAMILIES[family]
    paper, exact = (
        fisher_information(
            family, x, parameters, "layer", method=method, phi=phi
        )
        for method in ("paper", "exact")
    )
    gap = blocks(exact - paper)
    # Bias and gain belong to one unit, in both.
    close(gap[:, D:, :, D:], 0, atol=1e-12)
    # The weights' blocks differ, between units and of one unit.
    size = np.abs(exact).max()
    for i, j in itertools.product(range(H), range(H)):
        assert np.abs(gap[i, :D, j, :D]).max() > 0.01 * size

    # deta_i/dw_j = -g_i / (H sigma) (1 + n_i n_j) x, and eq. 14 for i = j.
    a = x @ kernel
    sigma = a.std(1)
    n = (a - a.mean(1, keepdims=True)) / sigma[:, None]
    factor = np.eye(H) - (1 + n[:, :, None] * n[:, None, :]) / H
    factor = factor * (gain[:, None] / sigma[:, None, None])
    j = factor[..., None] * x[:, None, None, :]  # (N, H outputs, H units, D)
    eta = reference.eta(x, parameter_vector(parameters, "layer"), "layer")
    weight = reference.VARIANCES[family](eta, phi) / phi**2 / N
    expected = np.einsum("nh,nhik,nhjl->ikjl", weight, j, j)
    close(blocks(exact)[:, :D, :, :D], expected, **DIFFERENCES)
    own = np.einsum("nhhk->nhk", j)
    for i in range(H):
        close(
            blocks(paper)[i, :D, i, :D],
            np.einsum("n,nk,nl->kl", weight[:, i], own[:, i], own[:, i]),
            **DIFFERENCES,
        )


X, (W, B, G) = problem("layer")
CONSTANT = np.tile(W[:, :1], (1, H))
ZERO = W * [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        (("cauchy", X, (W, B)), {}, "`family` must be one of gauss.*'cauchy'"),
        ((["gaussian"], X, (W, B)), {}, r"`family` must be .*\['gaussian'\]"),
        (("gaussian", X, (W, B)), {"phi": 0.0}, "`phi` must be a finite num"),
        (("gaussian", X, (W, B)), {"phi": -1}, "`phi` must be .*phi=-1"),
        (("poisson", X, (W, B)), {"phi": 2.0}, "poisson family has no disp"),
        (("gaussian", X, (W, B), "group"), {}, "`normalization` must be one"),
        (("gaussian", X, (W, B)), {"method": "fast"}, "`method` must be one"),
        (("gaussian", X, (W, B)), {"epsilon": -1.0}, "`epsilon` must be a fi"),
        (("gaussian", X, (W, B), "layer"), {}, r"\(kernel, bias, gain\).*2 v"),
        (("gaussian", X, (W, B, G)), {}, r"\(kernel, bias\). Received: 3 v"),
        (("gaussian", X, W), {}, r"must be a tuple \(kernel, bias\)"),
        (("gaussian", X, (B, B)), {}, "kernel in `parameters` must have the"),
        (("gaussian", X, (W, B[:2])), {}, r"bias .*shape \(3,\).*\(2,\)"),
        (("gaussian", X, (W, B, G[:1]), "layer"), {}, r"The gain .*\(1,\)"),
        (("gaussian", X[:, :3], (W, B)), {}, r"`x` must .*4 feat.*\(9, 3\)"),
        (("gaussian", X[0], (W, B)), {}, r"`x` must have the shape"),
        (("gaussian", X[:0], (W, B)), {}, r"`x` must .*Received.*\(0, 4\)"),
        (("gaussian", X.astype(int), (W, B)), {}, "`x` must have a floating"),
        (
            ("gaussian", X, (CONSTANT, B, G), "layer"),
            {},
            "an example over the units are constant.*epsilon=0 is 0/0",
        ),
        (
            ("gaussian", X[:1], (W, B, G), "batch"),
            {},
            "over the examples are constant.*Give `epsilon` a positive",
        ),
        (
            ("gaussian", X, (ZERO, B, G), "weight"),
            {"epsilon": 1.0},
            "a unit whose weights are all zero",
        ),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        fisher_information(*arguments, **options)


def test_parameter_vector_is_in_the_order_of_units():
    vector = parameter_vector((W, B, G), "layer")
    expected = [[*W[:, i], B[i], G[i]] for i in range(H)]
    np.testing.assert_array_equal(vector, np.concatenate(expected))
    with pytest.raises(ValueError, match="must be a tuple"):
        parameter_vector((W, B, G))
