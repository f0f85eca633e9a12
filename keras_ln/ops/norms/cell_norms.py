"""The sites of a time step at which recurrent cells normalise.

Plain differentiable functions and their hand-written gradients. The cell loop
uses only the functions, and so has derivatives of every order and mode.

Letters: B batch, F features of the normalised vector, U units.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras

from keras_ln import backend
from keras_ln.engine import arguments
from keras_ln.engine.dtypes import name_of, widen
from keras_ln.engine.spec import Spec
from keras_ln.ops.norms.batch_normalization import batch_statistics

# 16 unit roundoffs of the dtypes in which cells compute.
ROUNDING = {"float32": 2.0**-20, "float64": 2.0**-49}
# The gates that share a row's statistics: as in the paper, none, or all.
GROUPS = ("paper", "gate", "all")
# The named sites.
EVERY_SITE = ("kernel", "recurrent", "state", "sum")


def is_flat(mean: Any, variance: Any) -> Any:
    """Whether a variance is zero up to rounding, as a bool tensor.

    Its root is then at most 16 unit roundoffs of the mean; both are in at least
    float32.
    """
    rounding = mean * ROUNDING[name_of(mean.dtype)]
    # The difference, because both may be inf if rows overflow.
    return variance - rounding * rounding <= 0.0


def check_groups(groups: Any) -> str:
    """Returns `groups`; `ValueError` unless it is one of `GROUPS`."""
    # An array has no truth value.
    if not isinstance(groups, str) or groups not in GROUPS:
        raise arguments.wrong(
            "groups", f"one of {', '.join(map(repr, GROUPS))}", groups
        )
    return groups


def check_sites(
    normalize: Any, sites: tuple[str, ...] = EVERY_SITE
) -> tuple[str, ...]:
    """`normalize` in the order of `sites`; `ValueError` for other names."""
    if not arguments.is_sequence(normalize) or not all(
        isinstance(site, str) and site in sites for site in normalize
    ):
        one = isinstance(normalize, str) and normalize in sites
        hint = f". Write normalize={(normalize,)}" if one else ""
        raise ValueError(
            f"Argument `normalize` must be a tuple of any of {sites}. "
            f"Received: normalize={normalize!r}{hint}"
        )
    if "sum" in normalize and {"kernel", "recurrent"} & set(normalize):
        raise ValueError(
            'Argument `normalize` must have "sum" in place of "kernel" and '
            f'"recurrent", not with them. Received: normalize={normalize!r}'
        )
    return tuple(site for site in sites if site in normalize)


class LayerNorms:
    """The normalised sites of a step, with the statistics of each row.

    `weights` maps `{site}_gamma` and `{site}_beta` (F) to tensors; a site is
    normalised if its gamma is among them. The site "" has the weights `gamma`
    and `beta`. A vector as wide as all gates is normalised segment by segment,
    as `spec.groups` says, any other whole.
    """

    def __init__(
        self,
        weights: dict[str, Any],
        spec: Spec,
        # For statistics of the batch: bool (B, 1), False for rows that do not
        # count; and mean and variance (F) by site, which replace them.
        valid: Any = None,
        moving: dict[str, Any] | None = None,
        # For `once`: what it gave in the step forward, by name, or {} there.
        kept: dict[str, Any] | None = None,
    ):
        self.weights, self.spec = weights, spec
        self.valid, self.moving = valid, moving
        self.kept, self.again = kept, bool(kept)
        segments = spec.cell.segments[spec.groups]
        unit = weights["recurrent_kernel"].shape[-1] // spec.cell.gates
        self.ends = [unit * k for k in itertools.accumulate(segments)]

    def once(self, names: Any, make: Callable[[], Any]) -> Any:
        """`make()`, or what it was in the step forward, if that was kept.

        A name has one tensor, names have several.
        """
        if self.kept is None:
            return make()
        one = isinstance(names, str)
        if not self.again:
            made = make()
            self.kept |= {names: made} if one else zip(names, made, strict=True)
            return made
        return self.kept[names] if one else [self.kept[n] for n in names]

    def sites(
        self,
        x_product: Any,
        h_product: Any,
        factors: dict[str, Any],
        shift: tuple[str, ...] = ("bias",),
    ) -> list["Site"]:
        """The sites of x W and of h R (B, F), or that of their sum."""
        if self.spec.summed:
            arguments = "sum", x_product, h_product, factors
            return [self.of_sum(*arguments, inside="sum_bias", shift=shift)]
        given = [factors.get(name) for name in ("kernel", "recurrent")]
        return [
            self.site("kernel", x_product, given[0], shift),
            self.site("recurrent", h_product, given[1], ("recurrent_bias",)),
        ]

    def of_sum(
        self,
        name: str,
        x_product: Any,
        h_product: Any,
        factors: dict[str, Any],
        inside: str,
        shift: tuple[str, ...] = (),
    ) -> "Site":
        """The site of the sum of both products and of the vector `inside`."""
        has = inside in self.weights

        def total() -> Any:
            z = x_product + h_product
            return z + widen(self.weights[inside]) if has else z

        z = self.once(f"{name}_z", total)
        site = self.site(name, z, factors.get(name), shift)
        return site._replace(inside=inside if has else "")

    def site(
        self,
        name: str,
        z: Any,
        factors: Any = None,
        shift: tuple[str, ...] = (),
    ) -> "Site":
        """Normalises the sum `z` (B, F), which is in at least float32.

        `value = gamma * (z - mean) * scale + beta`, or `z` itself without a
        gamma, plus the weights of `shift` that there are. The scale is
        `1 / sqrt(variance + epsilon)`, but the constant 1 if there is no
        variance (`is_flat`); the value is beta either way. Otherwise every step
        of zeros from a zero state would multiply the gradient by
        `1 / sqrt(epsilon)` for every norm, and overflow it.

        A gradient needs the results of `factors` for the statistics.
        """
        gamma, shifts = self._weights_at(name, shift)
        if gamma is None:
            value = sum_of([z, *shifts.values()])
            return Site(name, value, None, self, shifts=(*shifts,))
        varying = statistics = None
        if factors is None:
            centred, statistics = self.centred(name, z)
            scale = self.spread(self.scale(*statistics))
        else:
            mean, signed = map(self.spread, factors)
            centred, scale = z - mean, abs(signed)
            varying = centred * backend.relu(signed)
        standard = centred * scale
        value = sum_of([standard * gamma, *shifts.values()])
        residuals = gamma, standard, varying, scale, (*shifts,)
        return Site(name, value, statistics, self, *residuals)

    def _weights_at(
        self, site: str, shift: tuple[str, ...]
    ) -> tuple[Any, dict[str, Any]]:
        """The gamma of a site, or None, and what is added to it by name."""
        prefix = f"{site}_" if site else ""
        gamma = self.weights.get(f"{prefix}gamma")
        names = [f"{prefix}beta"] * (gamma is not None) + [*shift]
        shifts = {
            name: widen(self.weights[name])
            for name in names
            if name in self.weights
        }
        return None if gamma is None else widen(gamma), shifts

    def plus_product(self, a: Any, b: Any, c: Any) -> Any:
        """`a + b * c`."""
        return a + b * c

    def site_vjp(self, site: "Site", dy: Any) -> tuple[Any, Any, Any]:
        """Gradients of `z`, of gamma, and of what is added to the value."""
        d_shift = backend.sum(dy, 0) if site.shifts else None
        if site.gamma is None:
            return dy, None, d_shift
        dz = self.standardize_vjp(site.varying, site.scale, dy * site.gamma)
        return dz, backend.sum(dy * site.standard, 0), d_shift

    def standardize_vjp(self, y: Any, scale: Any, g: Any) -> Any:
        """Gradient of `z` from the gradient of its standardised value.

        Args:
            y: the standardised value (B, F), zero if the scale is constant.
            scale: of `z`, spread.
            g: gradient of the standardised value (B, F).
        """
        mean, along = self.average(g), self.average(g * y)
        return (g - self.spread(mean) - y * self.spread(along)) * scale

    def centred(self, site: str, z: Any) -> tuple[Any, tuple[Any, Any]]:
        """`z` without its mean; mean and variance, as `average` gives them."""
        # Centred before squaring: E[z^2] - mean^2 loses every digit if the mean
        # is large, and compiles to more kernels.
        mean = self.average(z)
        centred = z - self.spread(mean)
        return centred, (mean, self.average(centred * centred))

    def scale(self, mean: Any, variance: Any, flat: float = 1.0) -> Any:
        """The scale of each row; `flat` for rows without variance."""
        raised = variance + self.spec.epsilon
        # Moving statistics are constants: no gradient passes their scale.
        if self.spec.skip_flat_rows or self.moving is not None:
            return 1.0 / backend.sqrt(raised)
        # Replaced before the root, whose gradient overflows for a tiny epsilon.
        constant = is_flat(mean, variance)
        scale = 1.0 / backend.sqrt(backend.where(constant, 1.0, raised))
        return scale if flat == 1.0 else backend.where(constant, flat, scale)

    def factors_of(self, name: str, z: Any) -> tuple[Any, Any]:
        """The factors of a site, and `z` for it."""
        return self.factors(*self.centred(name, z)[1]), z

    def factors(self, mean: Any, variance: Any) -> tuple[Any, Any]:
        """Mean and scale, for `site`; -1 marks a scale that is constant 1."""
        return mean, self.scale(mean, variance, flat=-1.0)

    def average(self, z: Any) -> Any:
        """Means (B, s) of the s segments of the rows."""
        size, last = z.shape[-1], (len(z.shape) - 1,)

        def mean(z: Any) -> Any:
            return backend.fused_sum(z, last, keepdims=True) / z.shape[-1]

        if size != self.ends[-1] or len(self.ends) == 1:
            return mean(z)
        places = zip([0, *self.ends], self.ends, strict=False)
        if backend.on_cpu():
            means = [mean(z[..., start:end]) for start, end in places]
        else:
            # Whole rows, which XLA fuses with the operations on them.
            here = keras.ops.arange(0, size)
            means = [
                mean(backend.where((here >= start) & (here < end), z, 0.0))
                / ((end - start) / size)
                for start, end in places
            ]
        return keras.ops.concatenate(means, axis=-1)

    def spread(self, average: Any) -> Any:
        """The averages (B, F), or (B, 1), each in the place of its segment."""
        if average.shape[-1] == 1:
            return average
        # jax2onnx (0.17) refuses an arange without its start.
        # test_formats.py notices.
        here = keras.ops.arange(0, self.ends[-1])
        spread = average[..., -1:]
        for k in reversed(range(len(self.ends) - 1)):
            spread = backend.where(
                here < self.ends[k], average[..., k : k + 1], spread
            )
        return spread


class Site(NamedTuple):
    """A normalised sum `z` (B, F), and the residuals of its gradient."""

    name: str
    value: Any  # (B, F)
    # Mean and variance of `z`. None if the factors are given, and without a
    # gamma.
    statistics: Any = None
    norms: Any = None
    # None if the site is not normalised, like the three below. In the gradient
    # of `FusedNorms` these are `z`, its mean, and its scale.
    gamma: Any = None
    standard: Any = None  # (z - mean) * scale
    # `standard`, but zero if the scale is constant. None without the factors.
    varying: Any = None
    scale: Any = None
    # The names of the vectors that are added to the value, and of the one in
    # `z`, or "".
    shifts: tuple[str, ...] = ()
    inside: str = ""

    def vjp(self, dy: Any) -> tuple[Any, dict[str, Any]]:
        """Gradients of `z` (B, F), and of the vectors (F) by name."""
        dz, d_gamma, d_shift = self.norms.site_vjp(self, dy)
        gradients = dict.fromkeys(self.shifts, d_shift)
        if self.gamma is not None:
            gradients[f"{self.name}_gamma".lstrip("_")] = d_gamma
        if self.inside:
            gradients[self.inside] = backend.sum(dz, 0)
        return dz, gradients


def sites_vjp(sites: list[Site], dy: list[Any]) -> tuple[Any, dict[str, Any]]:
    """Gradients of both products, and of the vectors by name, from `sites`."""
    found = [site.vjp(d) for site, d in zip(sites, dy, strict=True)]
    vectors = {n: d for _, of_site in found for n, d in of_site.items()}
    return (found[0][0], found[-1][0]), vectors


def sum_of(terms: Iterable[Any]) -> Any:
    """The sum, from the first term on."""
    return functools.reduce(operator.add, terms)


class BatchNorms(LayerNorms):
    """The normalised sites of a step, with the statistics of each column."""

    def centred(self, site: str, z: Any) -> tuple[Any, tuple[Any, Any]]:
        """`z` minus the mean of the rows that count, or the moving mean."""
        if self.moving is not None:
            statistics = self.moving[site]
        else:
            statistics = batch_statistics(z, self.valid, axes=(0,))
        return z - statistics[0], statistics

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

    def spread(self, average: Any) -> Any:
        """The averages (F) as they are."""
        return average
