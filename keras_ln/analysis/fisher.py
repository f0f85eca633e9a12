"""Fisher information of normalised generalised linear models, eq. 8-14.

Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), section 5.2.
Letters: N examples, D input features, H units, K = D + 1 parameters of a unit
(weights, bias) or D + 2 with a normalisation (and gain), P = H K parameters.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_ln.analysis import generalized_linear
from keras_ln.analysis.generalized_linear import Model
from keras_ln.engine import arguments, jacobian
from keras_ln.ops.generalized_linear import linear_predictor

METHODS = ("paper", "exact")


def fisher_information(
    family: str,
    x: Any,
    parameters: Sequence[Any],
    normalization: str | None = None,
    *,
    method: str = "paper",
    phi: float = 1.0,
    epsilon: float = 0.0,
) -> np.ndarray:
    """The Fisher information matrix of a generalised linear model.

    The outputs y_i of H units are independent given x, with (eq. 10, 11)

        log P(y_i | x) = (eta_i y_i - A(eta_i)) / phi + c(y_i, phi)
        E[y_i | x] = f(eta_i),   Var[y_i | x] = phi f'(eta_i)

    | family    | f       | f'        | phi              |
    |-----------|---------|-----------|------------------|
    | gaussian  | eta     | 1         | the variance     |
    | bernoulli | sigmoid | f (1 - f) | 1                |
    | poisson   | exp     | exp       | 1                |

    Without normalisation `eta = W^T x + b`, and eq. 12 says

        F = E_x[Cov[y | x] / phi^2 (x) [[x x^T, x], [x^T, 1]]]

    With one, `eta_i = g_i n_i + b_i`, `n_i = (a_i - mu_i) / sigma_i` and
    `a = W^T x`. The block of the units i and j is then (eq. 13, 14)

        F_ij = E_x[Cov[y_i, y_j | x] / phi^2 u_i u_j^T]
        u_i = [chi_i g_i / sigma_i, 1, n_i]
        chi_i = x - dmu_i/dw_i - n_i dsigma_i/dw_i

    Batch normalisation takes mu and sigma over the examples, so `dmu_i/dw_i =
    E[x]` and `dsigma_i/dw_i = Cov[x] w_i / sigma_i`. Weight normalisation has
    `mu = 0` and `sigma_i = ||w_i||`, so chi_i is x minus its projection on w_i.
    Layer normalisation has `chi_i = x (1 - 1/H - (a_i - mu)^2 / (H sigma^2))`.

    `method="paper"` follows eq. 13, which keeps only the derivative of a unit
    in its own parameters. Under layer normalisation mu and sigma bring the
    weights of all units into every output: `deta_i/dw_j = -g_i / (H sigma)
    (1 + n_i n_j) x` for j != i, and F has blocks between units even though
    their outputs are independent.
    `method="exact"` includes them: it computes F from the Jacobian of eta by
    the backend's autodiff,

        F = E_x[J^T Cov[y | x] J] / phi^2

    The two are equal except for layer normalisation; for it only the exact
    matrix is the metric of the Kullback-Leibler divergence.

    Args:
        family: "gaussian", "bernoulli" or "poisson".
        x: floating-point data (N, D); E_x is the mean over them.
        parameters: `(kernel, bias)` of shapes (D, H), (H), and with a
            normalisation `(kernel, bias, gain)`, gain (H).
        normalization: None, "batch", "weight" or "layer".
        method: "paper" or "exact".
        phi: the dispersion, a finite number > 0; must be 1 except for
            "gaussian".
        epsilon: finite number >= 0, inside the square root of sigma (batch,
            layer). The paper has none.

    Returns:
        F (P, P), symmetric, a NumPy array in the widest dtype of the
        arguments, at least float32. Parameters are in the order of
        `parameter_vector`; `F.reshape(H, K, H, K)[i, :, j, :]` is F_ij.

    Raises:
        ValueError: if a name, `phi`, `epsilon`, a shape or a dtype is wrong,
            or if sigma is zero.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 8-14.

    >>> x = np.array([[1.0, 2.0], [3.0, -1.0]])
    >>> kernel, bias = np.array([[0.5], [1.0]]), np.zeros(1)
    >>> print(fisher_information("gaussian", x, (kernel, bias)))
    [[ 5.  -0.5  2. ]
     [-0.5  2.5  0.5]
     [ 2.   0.5  1. ]]

    No step along the weights changes a weight-normalised model:

    >>> parameters = (kernel, bias, np.ones(1))
    >>> f = fisher_information("gaussian", x, parameters, "weight")
    >>> print((f @ [0.5, 1.0, 0.0, 0.0]).round(12) + 0.0)
    [0. 0. 0. 0.]
    """
    check_method(method)
    model = generalized_linear.make_model(x, parameters, normalization, epsilon)
    weight = output_information(family, model, phi) / len(model.x)
    units, size = model.theta.shape
    dtype = model.dtype
    if method == "paper":
        own = own_derivatives(model)
        blocks = np.zeros((units, size, units, size))
        blocks[range(units), :, range(units)] = np.einsum(
            "nh,nhk,nhl->hkl", weight, own, own
        )
        fisher = blocks.reshape(units * size, units * size)
    else:
        j = _jacobian_of_eta(model)
        # JAX without 64 bits computes in float32 even if asked for float64.
        dtype = j.dtype.name
        j = j.reshape(-1, units * size) * np.sqrt(weight).reshape(-1, 1)
        fisher = j.T @ j
    return fisher.astype(dtype)


def parameter_vector(
    parameters: Sequence[Any], normalization: str | None = None
) -> np.ndarray:
    """`theta` (P): weights, bias and gain of unit 1, then of unit 2, and so on.

    Args:
        parameters: `(kernel, bias)` of shapes (D, H), (H), and with a
            normalisation `(kernel, bias, gain)`, gain (H); or their changes,
            for `riemannian_metric`.
        normalization: None, "batch", "weight" or "layer".

    Returns:
        The paper's `vec([W, b]^T)` or `vec([W, b, g]^T)`, NumPy float64.

    Raises:
        ValueError: if their number or a shape or dtype is wrong.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 12, 13.

    >>> kernel, bias = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0, 6.0])
    >>> print(parameter_vector((kernel, bias)))
    [1. 3. 5. 2. 4. 6.]
    """
    theta, _ = generalized_linear.unit_rows(parameters, normalization)
    return theta.reshape(-1)


def check_method(method: Any) -> None:
    """`ValueError` unless `method` is "paper" or "exact"."""
    if method not in METHODS:
        raise arguments.wrong("method", f"one of {METHODS}", method)


def output_information(family: str, model: Model, phi: float) -> np.ndarray:
    """`Var[y_i | x] / phi^2 = f'(eta_i) / phi` (N, H)."""
    found = generalized_linear.check_family(family, phi)
    return found.slope(model.eta) / phi


def own_derivatives(model: Model) -> np.ndarray:
    """u_i of eq. 13 (N, H, K), the derivative of eta_i in its parameters."""
    weights = chi(model) * (model.gain / model.sigma)[..., None]
    rest = [np.ones_like(model.eta)]
    if model.normalization is not None:
        rest.append(model.normalized)
    return np.concatenate([weights, np.stack(rest, -1)], -1)


def chi(model: Model) -> np.ndarray:
    """Eq. 14, (N, H, D): `x - dmu_i/dw_i - n_i dsigma_i/dw_i`."""
    x, n = model.x[:, None, :], model.normalized[..., None]
    if model.normalization == "batch":
        centred = model.x - model.x.mean(0)
        # Cov[x] w_i / sigma_i, (H, D).
        of_sigma = model.normalized.T @ centred / len(centred)
        return centred[:, None, :] - n * of_sigma
    if model.normalization == "weight":
        return x - n * (model.kernel / model.sigma[0]).T
    if model.normalization == "layer":
        units = model.kernel.shape[1]
        return x * (1 - (1 + n * n) / units)
    return np.broadcast_to(x, (*model.eta.shape, x.shape[-1]))


def _jacobian_of_eta(model: Model) -> np.ndarray:
    """The Jacobian (N, H, H, K), by the backend's autodiff in the dtype."""
    x, theta = (
        keras.ops.convert_to_tensor(array.astype(model.dtype))
        for array in (model.x, model.theta)
    )
    j = jacobian(
        lambda theta: linear_predictor(
            x, theta, model.normalization, model.epsilon
        ),
        theta,
    )
    return keras.ops.convert_to_numpy(j)
