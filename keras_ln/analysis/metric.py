"""Distances between nearby models, eq. 8, and in their gains, eq. 32-35.

Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), section 5.2 and
its supplement. Letters: N examples, D input features, H units, P parameters.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_ln.analysis import generalized_linear
from keras_ln.analysis.fisher import check_method, output_information


def riemannian_metric(fisher: Any, delta: Any) -> float:
    """`ds^2 = 1/2 delta^T F delta`, eq. 8.

    If F is the exact Fisher information at theta, this is, to second order in
    `delta`, the `kl_divergence` between the models with parameters theta and
    theta + delta.

    Args:
        fisher: F (P, P), from `fisher_information`, `gain_metric` or
            `projected_metric`.
        delta: (P), in the same order, for example from `parameter_vector`.

    Returns:
        A number; NaN if an argument contains NaN.

    Raises:
        ValueError: if the shapes do not fit.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 8.

    >>> riemannian_metric([[2.0, 0.0], [0.0, 4.0]], [1.0, 0.5])
    1.5
    """
    fisher, delta = (np.asarray(a, "float64") for a in (fisher, delta))
    if delta.ndim != 1 or fisher.shape != 2 * delta.shape:
        raise ValueError(
            "Argument `fisher` must be a matrix (P, P) and `delta` a vector "
            f"(P). Received: shapes {fisher.shape} and {delta.shape}"
        )
    return float(delta @ fisher @ delta / 2)


def kl_divergence(
    family: str,
    x: Any,
    parameters: Sequence[Any],
    other: Sequence[Any],
    normalization: str | None = None,
    *,
    phi: float = 1.0,
    epsilon: float = 0.0,
) -> float:
    """`D_KL[P(y | x; theta) || P(y | x; theta')]`, the mean over `x`.

    For a model of `fisher_information` with `eta` and `eta'` it is

        E_x[sum_i (f(eta_i) (eta_i - eta_i') - A(eta_i) + A(eta_i')) / phi]

    Args:
        family: "gaussian", "bernoulli" or "poisson".
        x: floating-point data (N, D).
        parameters: theta, as `fisher_information` takes them.
        other: theta', of the same shapes.
        normalization: None, "batch", "weight" or "layer".
        phi: the dispersion, a finite number > 0; must be 1 except for
            "gaussian".
        epsilon: finite number >= 0, inside the square root of sigma.

    Returns:
        A number >= 0, up to rounding, in float64.

    Raises:
        ValueError: if an argument is wrong, as in `fisher_information`.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), section 5.2.1.

    >>> x, kernel, bias = np.ones((1, 1)), np.ones((1, 1)), np.zeros(1)
    >>> kl_divergence("gaussian", x, (kernel, bias), (kernel, bias + 2))
    2.0
    """
    found = generalized_linear.check_family(family, phi)
    here, there = (
        generalized_linear.make_model(x, p, normalization, epsilon)
        for p in (parameters, other)
    )
    if here.theta.shape != there.theta.shape:
        raise ValueError(
            "Argument `other` must have the shapes of `parameters`. Received: "
            f"kernels of shapes {here.kernel.shape} and {there.kernel.shape}"
        )
    eta, other_eta = here.eta, there.eta
    terms = found.mean(eta) * (eta - other_eta)
    terms = terms + found.log_partition(other_eta) - found.log_partition(eta)
    return float(terms.sum(1).mean() / phi)


def gain_metric(
    family: str,
    x: Any,
    parameters: Sequence[Any],
    normalization: str,
    *,
    method: str = "paper",
    phi: float = 1.0,
    epsilon: float = 0.0,
) -> np.ndarray:
    """The metric of the gains, eq. 32-34.

    `ds^2 = 1/2 delta_g^T G delta_g` for a change delta_g (H) of the gains,
    with the Cov[y | x] of `fisher_information` and (all divided by phi^2)

        batch:  G = E_x[Cov[y | x]]                                   (32)
        layer:  G_ij = E_x[Cov[y_i, y_j | x]
                           (a_i - mu) (a_j - mu) / sigma^2]           (33)
        weight: G_ij = E_x[Cov[y_i, y_j | x]
                           a_i a_j / (||w_i|| ||w_j||)]               (34)

    Eq. 32 lacks the factors `(a_i - mu_i) / sigma_i` that the gain block of
    eq. 13 has. `method="exact"` keeps them, and is the gain block of either
    Fisher information for every normalisation. On the diagonal the two methods
    agree if Var[y | x] is constant (gaussian), since `(a - mu) / sigma` has
    variance 1. The gains learn at a rate that does not depend on the size of
    the weights, unlike the weights' lengths in `projected_metric`.

    Args:
        family: "gaussian", "bernoulli" or "poisson".
        x: floating-point data (N, D).
        parameters: `(kernel, bias, gain)` of shapes (D, H), (H), (H).
        normalization: "batch", "weight" or "layer".
        method: "paper" or "exact".
        phi: the dispersion, a finite number > 0; must be 1 except for
            "gaussian".
        epsilon: finite number >= 0, inside the square root of sigma.

    Returns:
        G (H, H), diagonal since the outputs are independent given x, a NumPy
        array in the widest dtype of the arguments, at least float32.

    Raises:
        ValueError: if an argument is wrong, as in `fisher_information`.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 32-34.

    >>> x, gain = np.array([[1.0, 2.0], [3.0, -1.0]]), np.ones(1)
    >>> parameters = (np.array([[3.0], [4.0]]), np.zeros(1), gain)
    >>> print(gain_metric("gaussian", x, parameters, "weight"))
    [[2.92]]
    """
    check_method(method)
    if normalization is None:
        raise ValueError(
            "Argument `normalization` must not be None: without normalisation "
            "there are no gains; `projected_metric` is the metric of the "
            "standard model. Received: normalization=None"
        )
    model = generalized_linear.make_model(x, parameters, normalization, epsilon)
    information = output_information(family, model, phi)
    if method == "exact" or normalization != "batch":
        information = information * model.normalized**2
    return np.diag(information.mean(0)).astype(model.dtype)


def projected_metric(
    family: str, x: Any, parameters: Sequence[Any], *, phi: float = 1.0
) -> np.ndarray:
    """The standard model's metric along its weight vectors, eq. 35.

    The change `delta_i w_i / ||w_i||` of w_i changes its length and keeps its
    direction, like a change of the gain of a weight-normalised unit:
    `ds^2 = 1/2 delta^T G delta` with

        G_ij = E_x[Cov[y_i, y_j | x] a_i a_j / (||w_i|| ||w_j||)] / phi^2

    This is eq. 34 at gains `g_i = ||w_i||`, which make both models equal.

    Args:
        family: "gaussian", "bernoulli" or "poisson".
        x: floating-point data (N, D).
        parameters: `(kernel, bias)` of shapes (D, H), (H); no column of the
            kernel is zero.
        phi: the dispersion, a finite number > 0; must be 1 except for
            "gaussian".

    Returns:
        G (H, H), diagonal since the outputs are independent given x, a NumPy
        array in the widest dtype of the arguments, at least float32.

    Raises:
        ValueError: if an argument is wrong, as in `fisher_information`.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 35.

    >>> x = np.array([[1.0, 2.0], [3.0, -1.0]])
    >>> kernel, bias = np.array([[3.0], [4.0]]), np.zeros(1)
    >>> print(projected_metric("gaussian", x, (kernel, bias)))
    [[2.92]]
    """
    model = generalized_linear.make_model(x, parameters, None, 0.0)
    information = output_information(family, model, phi)
    norms = np.sqrt((model.kernel**2).sum(0))
    if (norms == 0).any():
        raise ValueError(
            "The kernel in `parameters` has a unit whose weights are all zero "
            f"and have no direction. Received: norms {norms}"
        )
    along = model.normalized / norms  # the summed inputs a, without mu, sigma
    return np.diag((information * along**2).mean(0)).astype(model.dtype)
