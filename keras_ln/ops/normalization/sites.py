"""The sites of a time step at which recurrent cells normalise.

Plain differentiable functions beside their hand-written gradients: the cell
loop takes the first alone, and so has derivatives of every order and mode.

Letters: B batch, F features of the normalised vector.
"""

from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.cells.types import Settings
from keras_ln.ops.dtypes import name_of, widen
from keras_ln.ops.normalization.batch_normalization import batch_statistics

# 16 unit roundoffs of the dtypes in which cells compute.
_ROUNDING = {"float32": 2.0**-20, "float64": 2.0**-49}


def is_flat(mean: Any, variance: Any) -> Any:
    """Where a variance is zero up to rounding, as a bool tensor.

    That is where its root is at most 16 unit roundoffs of the mean, both being
    in at least float32.
    """
    rounding = mean * _ROUNDING[name_of(mean.dtype)]
    # The difference: where rows overflow, both may be inf.
    return variance - rounding * rounding <= 0.0


class Site:
    """A place of the step where a sum `z` (B, F) is normalised.

    `value = gamma * (z - mean) * scale + beta`; or `z` as it is where there
    is no gamma. The scale is `1 / sqrt(variance + epsilon)`; where there is no
    variance (`is_flat`) it is 1, a constant. The value is beta there either
    way. But steps of zeros from a state of zero would each multiply the
    gradient by `1 / sqrt(epsilon)` for every norm, and overflow it.

    Attributes:
        name: of the site.
        value: tensor (B, F).
        statistics: mean and variance of `z`, or None where there is no gamma,
            and where the factors are given.
    """

    def __init__(self, norms: "LayerNorms", name: str, z: Any, factors: Any):
        """See `LayerNorms.site`."""
        self.name, self.value, self.statistics = name, z, None
        self._norms = norms
        self._gamma = norms.weight(name, "gamma")
        self._beta = norms.weight(name, "beta")
        if self._gamma is None:
            return
        if factors is None:
            centred, self.statistics = norms.centred(name, z)
            scale = norms.spread(norms.scale(*self.statistics))
        else:
            mean, signed = map(norms.spread, factors)
            centred, scale = z - mean, abs(signed)
            self._scale = scale
            self._varying = centred * backend.relu(signed)
        self._standard = centred * scale
        self.value = self._standard * self._gamma
        if self._beta is not None:
            self.value = self.value + self._beta

    def vjp(self, dy: Any) -> tuple[Any, dict[str, Any]]:
        """Gradients of `z` (B, F), and of gamma and beta (F) by name."""
        if self._gamma is None:
            return dy, {}
        gamma, beta = _name(self.name, "gamma"), _name(self.name, "beta")
        gradients = {gamma: backend.sum(dy * self._standard, 0)}
        if self._beta is not None:
            gradients[beta] = backend.sum(dy, 0)
        g = dy * self._gamma
        dz = self._norms.standardize_vjp(self._varying, self._scale, g)
        return dz, gradients


class LayerNorms:
    """The normalised sites of a step, with the statistics of each row.

    A site is normalised where its gamma is there: `weights` maps
    `{site}_gamma` and `{site}_beta` (F) to tensors. The site "" has the
    weights `gamma` and `beta`.
    """

    def __init__(self, weights: dict[str, Any], settings: Settings):
        """The sites of one step."""
        self.weights, self.settings = weights, settings

    def site(self, name: str, z: Any, factors: Any = None) -> Site:
        """The site `name`, where the sum is `z` (B, F), at least float32.

        `factors` are what `factors` makes of its statistics, once known. A
        gradient needs them.
        """
        return Site(self, name, z, factors)

    def weight(self, site: str, kind: str) -> Any:
        """The site's gamma or beta (F) in at least float32, or None."""
        weight = self.weights.get(_name(site, kind))
        return None if weight is None else widen(weight)

    def standardize_vjp(self, y: Any, scale: Any, g: Any) -> Any:
        """Gradient of `z` from the gradient of its standardised value.

        Args:
            y: the standardised value (B, F), zero where the scale is constant.
            scale: of `z`, as it is spread.
            g: gradient of the standardised value (B, F).
        """
        mean, along = self.average(g), self.average(g * y)
        return (g - self.spread(mean) - y * self.spread(along)) * scale

    def centred(self, site: str, z: Any) -> tuple[Any, tuple[Any, Any]]:
        """`z` without its mean; mean and variance, as `average` gives them."""
        # Centred before squaring: E[z^2] - mean^2 loses every digit where the
        # mean is large, and compiles to more kernels.
        mean = self.average(z)
        centred = z - self.spread(mean)
        return centred, (mean, self.average(centred * centred))

    def scale(self, mean: Any, variance: Any) -> Any:
        """The scale of each row; see `Site`."""
        scale = 1.0 / backend.sqrt(variance + self.settings.epsilon)
        if self.settings.value_only:
            return scale
        return backend.where(is_flat(mean, variance), 1.0, scale)

    def factors(self, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Mean and scale, for `site`: -1 where the scale is the constant 1."""
        scale = 1.0 / backend.sqrt(variance + self.settings.epsilon)
        return mean, backend.where(is_flat(mean, variance), -1.0, scale)

    def average(self, z: Any) -> Any:
        """Means (B, 1) of the rows."""
        last = (len(z.shape) - 1,)
        return backend.fused_sum(z, last, keepdims=True) / z.shape[-1]

    def spread(self, average: Any) -> Any:
        """What `average` gives, so that it broadcasts against `z`."""
        return average


class BatchNorms(LayerNorms):
    """The normalised sites of a step, with the statistics of each column."""

    def __init__(
        self,
        weights: dict[str, Any],
        settings: Settings,
        valid: Any = None,
        moving: dict[str, Any] | None = None,
    ):
        """The sites of one step.

        Args:
            weights: see `LayerNorms`.
            settings: see there.
            valid: bool (B, 1), False where a row does not count; or None.
            moving: mean and variance (F) by site, to use in place of the
                batch's; or None.
        """
        super().__init__(weights, settings)
        self.valid, self.moving = valid, moving

    def centred(self, site: str, z: Any) -> tuple[Any, tuple[Any, Any]]:
        """With the mean of the rows that count, or the moving one."""
        if self.moving is not None:
            statistics = self.moving[site]
        else:
            statistics = batch_statistics(z, self.valid, axes=(0,))
        return z - statistics[0], statistics

    def scale(self, mean: Any, variance: Any) -> Any:
        """The scale of each column; see `Site`."""
        if self.moving is not None:
            return 1.0 / backend.sqrt(variance + self.settings.epsilon)
        return super().scale(mean, variance)

    def factors(self, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Mean and scale, for `site`; moving statistics are constants."""
        if self.moving is not None:
            return mean, self.scale(mean, variance)
        return super().factors(mean, variance)

    def standardize_vjp(self, y: Any, scale: Any, g: Any) -> Any:
        """Gradient of `z`; `g` is zero in the rows that do not count."""
        if self.moving is not None:
            return g * scale
        if self.valid is None:
            return super().standardize_vjp(y, scale, g)
        y = backend.where(self.valid, y, 0.0)
        dz = super().standardize_vjp(y, scale, g)
        return backend.where(self.valid, dz, 0.0)

    def average(self, z: Any) -> Any:
        """Means (F) over the rows that count; `z` is zero in the others."""
        if self.valid is None:
            return backend.mean(z, 0)
        count = backend.sum(keras.ops.cast(self.valid, z.dtype), 0)
        return backend.sum(z, 0) / keras.ops.maximum(count, 1.0)


def _name(site: str, kind: str) -> str:
    return f"{site}_{kind}" if site else kind
