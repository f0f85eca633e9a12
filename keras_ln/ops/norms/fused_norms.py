"""The sites of a time step, by single operations of the framework.

Letters: B batch, F features of the normalised vector, s segments that share
statistics.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine.dtypes import name_of, widen
from keras_ln.ops.norms.cell_norms import (
    ROUNDING,
    LayerNorms,
    Site,
    is_flat,
    sum_of,
)


class FusedNorms(LayerNorms):
    """As `LayerNorms`, each segment by one operation of the framework.

    In the step forward rows without variance are scaled like the others.
    """

    def site(
        self,
        name: str,
        z: Any,
        factors: Any = None,
        shift: tuple[str, ...] = (),
    ) -> Site:
        """As `LayerNorms.site`; without the value where that was kept."""
        gamma, shifts = self._weights_at(name, shift)
        if self.again or factors is not None:
            mean, scale = factors or (None, None)
            residuals = gamma, z, mean, scale, (*shifts,)
            return Site(name, None, None, self, *residuals)
        if gamma is None:
            return super().site(name, z, shift=shift)
        beta = sum_of(shifts.values()) if shifts else None
        epsilon = self.spec.epsilon
        value, mean, scale = _joined(
            backend.fused.layer_norm(*parts, epsilon)
            for parts in self._parts(z, gamma, beta)
        )
        if self.kept is not None:
            self.kept |= {f"{name}_center": mean, f"{name}_scale": scale}
        return Site(name, value, None, self)

    def site_vjp(self, site: Site, dy: Any) -> tuple[Any, Any, Any]:
        """As `LayerNorms.site_vjp`."""
        if site.gamma is None:
            return super().site_vjp(site, dy)
        wide = dy, site.standard, site.gamma
        return _joined(
            backend.fused.layer_norm_vjp(*parts)
            for parts in self._parts(*wide, averages=(site.varying, site.scale))
        )

    def plus_product(self, a: Any, b: Any, c: Any) -> Any:
        """As `LayerNorms.plus_product`."""
        return backend.fused.multiply_add(a, b, c)

    def factors_of_steps(self, z: Any, mean: Any, scale: Any) -> Any:
        """Mean and scale of `z` for `site_vjp`, and `z`, for all steps at once.

        They are what the steps forward found, except for rows without variance:
        there the scale is 1, and mean and `z` are 0 where the mean is large:
        torch's gradient has an error of as many unit roundoffs as mean / scale.
        """
        rounding = mean * ROUNDING[name_of(mean.dtype)]
        # Beside epsilon so small a variance does not show in the scale.
        most = backend.sqrt(rounding * rounding + self.spec.epsilon)

        def marked(scale: Any, z: Any) -> Any:
            _, statistics = self.centred("", widen(z))
            return backend.where(is_flat(*statistics), -1.0, scale)

        def level(z: Any, far: Any) -> Any:
            return backend.where(self.spread(far), 0.0, z)

        revise = backend.fused.revise
        ordinary = scale * most <= 1.0 - 2.0**-18  # False for NaN.
        scale = revise(~ordinary, marked, scale, z)
        far = (scale < 0.0) & (abs(mean) > 1.0)
        mean = backend.where(far, 0.0, mean)
        return mean, abs(scale), revise(far, level, z, far)

    def factors_of(self, name: str, z: Any) -> tuple[Any, Any]:
        """As `LayerNorms.factors_of`, from what `site` kept."""
        kept = self.kept or {}
        names = f"{name}_center", f"{name}_scale"
        *factors, z = self.factors_of_steps(z, *map(kept.get, names))
        return factors, z

    def _parts(self, *wide: Any, averages: Any = ()) -> Iterator[list[Any]]:
        """Of each segment, the parts of these (..., F) and of the averages."""
        if wide[0].shape[-1] != self.ends[-1] or len(self.ends) == 1:
            yield [*wide, *averages]
            return
        for k, (start, end) in enumerate(itertools.pairwise([0, *self.ends])):
            parts = [None if a is None else a[..., start:end] for a in wide]
            yield [*parts, *(a[..., k : k + 1] for a in averages)]


def _joined(parts: Iterable[tuple[Any, ...]]) -> Any:
    """The results of all segments, each in one tensor."""
    first, *rest = parts
    if not rest:
        return first
    columns = zip(first, *rest, strict=True)
    return [keras.ops.concatenate(column, axis=-1) for column in columns]
