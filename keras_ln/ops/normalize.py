"""Normalization of one time step, as the recurrent cells use it.

Plain differentiable functions beside their hand-written gradients: the cell
loop takes the first alone, and so has derivatives of every order and mode.

Letters: B batch, F features of the normalised vector.
"""

from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.arguments import statistics_dtype
from keras_ln.ops.batch_normalization import batch_statistics


def widen(x: Any) -> Any:
    """`x` in at least float32, in which cells compute."""
    return keras.ops.cast(x, statistics_dtype(x.dtype))


class Site:
    """A place of the step where a sum `z` (B, F) is normalised.

    `value = gamma * (z - mean) * scale + beta`, the scale being
    `1 / sqrt(variance + epsilon)`; or `z` as it is where there is no gamma.

    Attributes:
        name: of the site.
        value: tensor (B, F).
        statistics: those of `z`, or None where there is no gamma.
    """

    def __init__(self, norms: "LayerNorms", name: str, z: Any, statistics: Any):
        """See `LayerNorms.site`."""
        self.name, self.value, self.statistics = name, z, None
        self._norms = norms
        self._gamma = norms.weight(name, "gamma")
        self._beta = norms.weight(name, "beta")
        if self._gamma is None:
            return
        if statistics is None:
            statistics = norms.statistics(name, z)
        self.statistics = statistics
        self._scale = norms.spread(norms.scale(statistics))
        self._standard = (z - norms.spread(statistics[0])) * self._scale
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
        dz = self._norms.standardize_vjp(self._standard, self._scale, g)
        return dz, gradients


class LayerNorms:
    """The normalised sites of a step, with the statistics of each row.

    A site is normalised where its gamma is there: `weights` maps
    `{site}_gamma` and `{site}_beta` (F) to tensors. The site "" has the
    weights `gamma` and `beta`.
    """

    def __init__(self, weights: dict[str, Any], epsilon: float):
        """The sites of one step."""
        self.weights, self.epsilon = weights, epsilon

    def site(self, name: str, z: Any, statistics: Any = None) -> Site:
        """The site `name`, where the sum is `z` (B, F), at least float32.

        `statistics` are those of `z`, where they are known by now.
        """
        return Site(self, name, z, statistics)

    def weight(self, site: str, kind: str) -> Any:
        """The site's gamma or beta (F) in at least float32, or None."""
        weight = self.weights.get(_name(site, kind))
        return None if weight is None else widen(weight)

    def standardize_vjp(self, y: Any, scale: Any, g: Any) -> Any:
        """Gradient of `z` from that of `y`, its standardised value."""
        mean, along = self.average(g), self.average(g * y)
        return (g - self.spread(mean) - y * self.spread(along)) * scale

    def statistics(self, site: str, z: Any) -> tuple[Any, Any]:
        """Mean and scale of the rows, as `average` gives them."""
        # Centred before squaring: E[z^2] - mean^2 loses every digit where the
        # mean is large, and compiles to more kernels.
        mean = self.average(z)
        centred = z - self.spread(mean)
        variance = self.average(centred * centred)
        return mean, 1.0 / backend.sqrt(variance + self.epsilon)

    def scale(self, statistics: tuple[Any, Any]) -> Any:
        """`1 / sqrt(variance + epsilon)`."""
        return statistics[1]

    def average(self, z: Any) -> Any:
        """Means (B, 1) of the rows."""
        last = (len(z.shape) - 1,)
        return backend.fused_sum(z, last, keepdims=True) / z.shape[-1]

    def spread(self, average: Any) -> Any:
        """What `average` gives, so that it broadcasts against `z`."""
        return average


class SegmentNorms(LayerNorms):
    """Sites whose first `split` features are normalised apart from the rest."""

    def __init__(self, weights: dict[str, Any], epsilon: float, split: int):
        """The sites of one step."""
        super().__init__(weights, epsilon)
        self.split = split

    def average(self, z: Any) -> Any:
        """Means (B, 2) of both parts of the rows."""
        average = super().average
        if backend.on_cpu():
            parts = [z[..., : self.split], z[..., self.split :]]
            means = [average(part) for part in parts]
        else:
            # Whole rows, which XLA joins to what is done with them.
            share = self.split / z.shape[-1]
            first = keras.ops.arange(z.shape[-1]) < self.split
            means = [
                average(keras.ops.where(first, z, 0.0)) / share,
                average(keras.ops.where(first, 0.0, z)) / (1.0 - share),
            ]
        return keras.ops.concatenate(means, axis=-1)

    def spread(self, average: Any) -> Any:
        """The averages (B, F), each in the place of its part."""
        size = next(iter(self.weights.values())).shape[0]
        return keras.ops.where(
            keras.ops.arange(size) < self.split,
            average[..., :1],
            average[..., 1:],
        )


class BatchNorms(LayerNorms):
    """The normalised sites of a step, with the statistics of each column."""

    def __init__(
        self,
        weights: dict[str, Any],
        epsilon: float,
        valid: Any = None,
        given: dict[str, Any] | None = None,
    ):
        """The sites of one step.

        Args:
            weights: see `LayerNorms`.
            epsilon: number > 0, inside the square root.
            valid: bool (B, 1), False where a row does not count; or None.
            given: mean and variance (F) by site, to use in place of the
                batch's; or None.
        """
        super().__init__(weights, epsilon)
        self.valid, self.given = valid, given

    def statistics(self, site: str, z: Any) -> tuple[Any, Any]:
        """Mean and variance (F) of the rows that count, or those given."""
        if self.given is not None:
            return self.given[site]
        return batch_statistics(z, self.valid, axes=(0,))

    def scale(self, statistics: tuple[Any, Any]) -> Any:
        """`1 / sqrt(variance + epsilon)`."""
        return 1.0 / backend.sqrt(statistics[1] + self.epsilon)

    def standardize_vjp(self, y: Any, scale: Any, g: Any) -> Any:
        """Gradient of `z`; `g` is zero in the rows that do not count."""
        if self.given is not None:
            return g * scale
        if self.valid is None:
            return super().standardize_vjp(y, scale, g)
        y = keras.ops.where(self.valid, y, 0.0)
        dz = super().standardize_vjp(y, scale, g)
        return keras.ops.where(self.valid, dz, 0.0)

    def average(self, z: Any) -> Any:
        """Means (F) over the rows that count; `z` is zero in the others."""
        if self.valid is None:
            return backend.mean(z, 0)
        count = backend.sum(keras.ops.cast(self.valid, z.dtype), 0)
        return backend.sum(z, 0) / keras.ops.maximum(count, 1.0)


def _name(site: str, kind: str) -> str:
    return f"{site}_{kind}" if site else kind
