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


class LayerNorms:
    """The normalised sites of a step, with the statistics of each row.

    A site is normalised where its gamma is there: `weights` maps
    `{site}_gamma` and `{site}_beta` (F) to tensors. The site "" has the
    weights `gamma` and `beta`.
    """

    def __init__(self, weights: dict[str, Any], epsilon: float):
        """The sites of one step."""
        self.weights, self.epsilon = weights, epsilon

    def forward(self, site: str, z: Any) -> tuple[Any, Any]:
        """`gamma * (z - mean) / sqrt(variance + epsilon) + beta`.

        Args:
            site: name of the site.
            z: tensor (B, F), in at least float32.

        Returns:
            The result (B, F) and the statistics: mean and variance, or None
            where the site is not normalised and `z` comes back as it is.
        """
        if self.weight(site, "gamma") is None:
            return z, None
        statistics = self.statistics(site, z)
        return self.again(site, z, statistics), statistics

    def again(self, site: str, z: Any, statistics: Any) -> Any:
        """What `forward` made of `z`, from the statistics it returned."""
        if statistics is None:
            return z
        y = self.standardize(z, statistics) * self.weight(site, "gamma")
        beta = self.weight(site, "beta")
        return y if beta is None else y + beta

    def vjp(
        self, site: str, z: Any, statistics: Any, dy: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Gradients of `z` (B, F), and of gamma and beta (F) by name."""
        if statistics is None:
            return dy, {}
        y = self.standardize(z, statistics)
        gradients = {_name(site, "gamma"): backend.sum(dy * y, 0)}
        if self.weight(site, "beta") is not None:
            gradients[_name(site, "beta")] = backend.sum(dy, 0)
        g = dy * self.weight(site, "gamma")
        return self.standardize_vjp(y, statistics, g), gradients

    def weight(self, site: str, kind: str) -> Any:
        """The site's gamma or beta (F) in at least float32, or None."""
        weight = self.weights.get(_name(site, kind))
        return None if weight is None else widen(weight)

    def standardize(self, z: Any, statistics: Any) -> Any:
        """`(z - mean) / sqrt(variance + epsilon)`."""
        mean, variance = statistics
        return (z - mean) * (1.0 / backend.sqrt(variance + self.epsilon))

    def statistics(self, site: str, z: Any) -> tuple[Any, Any]:
        """Mean and variance (B, 1) of the rows."""
        # Centred before squaring: E[z^2] - mean^2 loses every digit where the
        # mean is large, and compiles to more kernels.
        mean = backend.mean(z, -1, keepdims=True)
        centred = z - mean
        return mean, backend.mean(centred * centred, -1, keepdims=True)

    def standardize_vjp(self, y: Any, statistics: Any, g: Any) -> Any:
        """Gradient of `z` from that of `y`, its standardised value."""
        mean = backend.mean(g, -1, keepdims=True)
        along = backend.mean(g * y, -1, keepdims=True)
        scale = 1.0 / backend.sqrt(statistics[1] + self.epsilon)
        return scale * (g - mean - y * along)


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

    def standardize_vjp(self, y: Any, statistics: Any, g: Any) -> Any:
        """Gradient of `z`; `g` is zero in the rows that do not count."""
        scale = 1.0 / backend.sqrt(statistics[1] + self.epsilon)
        if self.given is not None:
            return scale * g
        if self.valid is None:
            mean = backend.mean(g, 0)
            along = backend.mean(g * y, 0)
            return scale * (g - mean - y * along)
        count = backend.sum(keras.ops.cast(self.valid, g.dtype), 0)
        count = keras.ops.maximum(count, 1.0)
        y = keras.ops.where(self.valid, y, 0.0)
        mean = backend.sum(g, 0) / count
        along = backend.sum(g * y, 0) / count
        return keras.ops.where(self.valid, scale * (g - mean - y * along), 0.0)


def _name(site: str, kind: str) -> str:
    return f"{site}_{kind}" if site else kind
