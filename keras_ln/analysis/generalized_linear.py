"""Generalised linear models with normalised summed inputs, in NumPy float64.

Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), section 5.2.2.
Letters: N examples, D input features, H units.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_ln.engine import arguments, dtypes
from keras_ln.ops.generalized_linear import NORMALIZATIONS


@dataclasses.dataclass(frozen=True)
class Family:
    """`log P(y | x) = (eta y - A(eta)) / phi + c(y, phi)`, eq. 10 and 11.

    Attributes:
        mean: f, with `E[y | x] = f(eta) = A'(eta)`.
        slope: f', with `Var[y | x] = phi f'(eta)`.
        log_partition: A.
        has_dispersion: whether phi may differ from 1.
    """

    mean: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    log_partition: Callable[[Any], Any]
    has_dispersion: bool = False


def _sigmoid(eta: Any) -> Any:
    # exp(-eta) would overflow at large negative values.
    return (1 + np.tanh(eta / 2)) / 2


FAMILIES = {
    "gaussian": Family(
        mean=lambda eta: eta,
        slope=np.ones_like,
        log_partition=lambda eta: eta * eta / 2,
        has_dispersion=True,
    ),
    "bernoulli": Family(
        mean=_sigmoid,
        slope=lambda eta: _sigmoid(eta) * _sigmoid(-eta),
        log_partition=lambda eta: np.logaddexp(0, eta),
    ),
    "poisson": Family(mean=np.exp, slope=np.exp, log_partition=np.exp),
}


def check_family(family: Any, phi: Any) -> Family:
    """The `Family` of a name; `ValueError` for others and for a wrong phi."""
    if not isinstance(family, str) or family not in FAMILIES:
        raise arguments.wrong("family", f"one of {', '.join(FAMILIES)}", family)
    found = FAMILIES[family]
    if arguments.check_positive("phi", phi) != 1 and not found.has_dispersion:
        raise ValueError(
            f"The {family} family has no dispersion: `phi` must be 1. "
            f"Received: phi={phi!r}"
        )
    return found


@dataclasses.dataclass(frozen=True)
class Model:
    """A model at given parameters and data, everything in float64.

    Attributes:
        x: data (N, D).
        kernel: weights (D, H); a column is the paper's w_i.
        gain: g (H), ones without normalisation.
        normalization: "batch", "weight", "layer" or None.
        epsilon: inside the square root of sigma.
        sigma: (N, H), ones without normalisation.
        normalized: `(a - mu) / sigma` (N, H).
        eta: `g (a - mu) / sigma + b` (N, H).
        theta: a unit's parameters in a row, (H, D + 1) or (H, D + 2).
        dtype: the dtype of the arguments, at least float32.
    """

    x: np.ndarray
    kernel: np.ndarray
    gain: np.ndarray
    normalization: str | None
    epsilon: float
    sigma: np.ndarray
    normalized: np.ndarray
    eta: np.ndarray
    theta: np.ndarray
    dtype: str


def make_model(
    x: Any, parameters: Sequence[Any], normalization: Any, epsilon: Any
) -> Model:
    """The `Model` for a user's arguments, which it checks."""
    epsilon = arguments.check_not_negative("epsilon", epsilon)
    if normalization is not None and normalization not in NORMALIZATIONS:
        raise arguments.wrong(
            "normalization", f"one of {NORMALIZATIONS} or None", normalization
        )
    theta, widest = unit_rows(parameters, normalization)
    data = _as_array("x", x)
    dtype = widest if widest == "float64" else dtypes.wide_dtype(data)
    features = theta.shape[1] - (1 if normalization is None else 2)
    if data.ndim != 2 or data.shape[1] != features or not len(data):
        raise ValueError(
            "Argument `x` must have the shape (examples, features), with the "
            f"kernel's {features} features. Received: shape {data.shape}"
        )
    data = data.astype("float64")
    kernel = theta[:, :features].T
    gain = theta[:, -1] if normalization else np.ones(len(theta))
    a = data @ kernel
    mu, sigma = _statistics(a, kernel, normalization, epsilon)
    normalized = (a - mu) / sigma
    return Model(
        x=data,
        kernel=kernel,
        gain=gain,
        normalization=normalization,
        epsilon=epsilon,
        sigma=np.broadcast_to(sigma, a.shape),
        normalized=normalized,
        eta=gain * normalized + theta[:, features],
        theta=theta,
        dtype=dtype,
    )


def unit_rows(
    parameters: Sequence[Any], normalization: Any
) -> tuple[np.ndarray, str]:
    """`theta` (H, D + 1) or (H, D + 2), a unit's parameters in a row; dtype."""
    names = ("kernel", "bias", "gain")[: 2 if normalization is None else 3]
    received = len(parameters) if arguments.is_sequence(parameters) else None
    if received != len(names):
        raise ValueError(
            f"With normalization={normalization!r}, argument `parameters` must "
            f"be a tuple ({', '.join(names)}). Received: "
            + (f"{received} values" if received else f"{type(parameters)}")
        )
    arrays = list(map(_as_array, names, parameters))
    kernel = arrays[0]
    if kernel.ndim != 2 or not kernel.size:
        raise ValueError(
            "The kernel in `parameters` must have the shape (features, "
            f"units). Received: shape {kernel.shape}"
        )
    for name, array in zip(names[1:], arrays[1:], strict=True):
        if array.shape != kernel.shape[1:]:
            raise ValueError(
                f"The {name} in `parameters` must have one entry per unit, "
                f"shape {kernel.shape[1:]}. Received: shape {array.shape}"
            )
    theta = np.vstack([a.astype("float64") for a in arrays]).T
    return theta, dtypes.wide_dtype(*arrays)


def _as_array(name: str, value: Any) -> np.ndarray:
    array = np.asarray(keras.ops.convert_to_numpy(value))
    arguments.check_floating(name, array.dtype)
    return array


def _statistics(
    a: np.ndarray, kernel: np.ndarray, normalization: str | None, epsilon: float
) -> tuple[Any, Any]:
    """The paper's mu and sigma of `a` (N, H), in shapes that broadcast."""
    if normalization is None:
        return 0.0, np.ones(())
    if normalization == "weight":
        sigma = np.sqrt((kernel**2).sum(0))
        if (sigma == 0).any():
            raise ValueError(
                "The kernel in `parameters` has a unit whose weights are all "
                "zero: weight normalisation divides by their norm. Received: "
                f"norms {sigma}"
            )
        return 0.0, sigma
    axis = 0 if normalization == "batch" else 1
    mu = a.mean(axis, keepdims=True)
    variance = ((a - mu) ** 2).mean(axis, keepdims=True)
    # Rounding gives constant inputs a variance that is not quite zero.
    rounding = (1e-13 * np.abs(a).max(axis, keepdims=True)) ** 2
    if epsilon == 0 and (variance <= rounding).any():
        what = (
            "over the examples"
            if normalization == "batch"
            else "of an example over the units"
        )
        raise ValueError(
            f"The summed inputs {what} are constant, so that {normalization} "
            "normalisation with epsilon=0 is 0/0. Give `epsilon` a positive "
            f"value. Received: summed inputs of shape {a.shape}"
        )
    return mu, np.sqrt(variance + epsilon)
