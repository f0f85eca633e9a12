"""Table 1 of the paper, measured: which changes a normalisation undoes.

Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), section 5.1.
Letters: N examples, D input features, H units.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np

from keras_ln.engine import arguments
from keras_ln.ops.generalized_linear import (
    NORMALIZATIONS,
    normalized_summed_inputs,
)

_EXAMPLES = 11
_FEATURES = 7
_FACTOR = 3.0

# Each takes kernel (D, H), x (N, D) and a vector gamma (D), and returns the
# changed kernel and x.
_CHANGES: dict[str, Callable[..., tuple[Any, Any]]] = {
    "weight matrix re-scaling": lambda w, x, gamma: (_FACTOR * w, x),
    "weight matrix re-centring": lambda w, x, gamma: (w + gamma[:, None], x),
    "weight vector re-scaling": lambda w, x, gamma: (w * _first(w.shape[1]), x),
    "data set re-scaling": lambda w, x, gamma: (w, _FACTOR * x),
    "data set re-centring": lambda w, x, gamma: (w, x + gamma),
    "single case re-scaling": lambda w, x, gamma: (
        w,
        x * _first(len(x))[:, None],
    ),
}
# The axes of the summed inputs (N, H) over which the variance is taken.
_AXES = {"batch": (0,), "layer": (1,), "weight": ()}


def _first(size: int) -> Any:
    """Factors (size) that change only the first entry."""
    return np.where(np.arange(size) == 0, _FACTOR, 1.0)


@dataclasses.dataclass(frozen=True)
class InvarianceTable:
    """The results of `invariance_table`; prints as Table 1 of the paper.

    Attributes:
        verdicts: `verdicts[kind][column]` is True if the normalisation is
            invariant under the change.
        deviations: `deviations[kind][column]`, the largest change of an
            output, divided by the largest output.
        bounds: the largest deviations that rounding and epsilon explain;
            verdicts are `deviation <= bound`.
    """

    verdicts: dict[str, dict[str, bool]]
    deviations: dict[str, dict[str, float]]
    bounds: dict[str, dict[str, float]]

    def __str__(self) -> str:
        heading = [["", "", ""], *(column.split() for column in _CHANGES)]
        lines = [list(line) for line in zip(*heading, strict=True)]
        lines += [
            [kind, *("invariant" if v else "no" for v in row.values())]
            for kind, row in self.verdicts.items()
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(map(str.ljust, line, widths)).rstrip() for line in lines
        ]
        text.append("Of the normalised summed inputs, before gain and bias.")
        return "\n".join(text)


def invariance_table(
    kinds: Sequence[str] = NORMALIZATIONS,
    layer: Any = None,
    epsilon: float = 0.0,
    *,
    units: int = 8,
    seed: int = 0,
    training: bool | None = None,
    dtype: str | None = None,
) -> InvarianceTable:
    """Changes weights and data, and measures how the outputs change.

    It makes the changes of Table 1, with a factor delta, a vector gamma (D),
    the weights of one unit w_i (D) and one example x_n (D):

    | column                    | change                                 |
    |---------------------------|----------------------------------------|
    | weight matrix re-scaling  | `W' = delta W`                         |
    | weight matrix re-centring | `W' = W + 1 gamma^T`: all units alike  |
    | weight vector re-scaling  | `w_i' = delta w_i`, the others stay    |
    | data set re-scaling       | `x' = delta x`                         |
    | data set re-centring      | `x' = x + gamma`                       |
    | single case re-scaling    | `x_n' = delta x_n`, the others stay    |

    The outputs are the normalised summed inputs of eq. 5, `(a - mu) / sigma`
    with `a = W^T x`, before gain, bias and nonlinearity.

    The paper has no epsilon. With one in `sigma = sqrt(var + epsilon)`, an
    invariant output changes by at most `epsilon/2 |1/var - 1/var'|` of its
    size; the verdicts allow for that, and for rounding.

    Args:
        kinds: any of "batch", "weight" and "layer", in the order of the rows.
        layer: None, or your own layer for a further row: called with x (N, D)
            it returns a tensor, and its `kernel` is a variable (D, H). Gain and
            bias should be 1 and 0. The function builds a Keras layer if
            necessary, and restores the kernel afterwards.
        epsilon: finite number >= 0, for `kinds`. With `layer`, give the epsilon
            that it uses: only the bound needs it.
        units: H, for `kinds`; at least 2.
        seed: of data and weights.
        training: passed to `layer`'s call unless it is None.
        dtype: "float32" or "float64", for `kinds`; by default Keras' `floatx`.

    Returns:
        An `InvarianceTable`.

    Raises:
        ValueError: if an argument is wrong, `layer` has no such kernel, or
            an output is not finite.
        TypeError: if `seed` is not an integer.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), section 5.1,
    Table 1, eq. 5-7.

    >>> print(invariance_table())
           weight     weight      weight     data       data        single
           matrix     matrix      vector     set        set         case
           re-scaling re-centring re-scaling re-scaling re-centring re-scaling
    batch  invariant  no          invariant  invariant  invariant   no
    weight invariant  no          invariant  no         no          no
    layer  invariant  invariant   no         invariant  no          invariant
    Of the normalised summed inputs, before gain and bias.

    Your own layer, for example one that divides by the root mean square:

    >>> class RMSDense(keras.layers.Dense):
    ...     def call(self, x):
    ...         a = keras.ops.matmul(x, self.kernel)
    ...         mean_square = keras.ops.mean(a * a, -1, keepdims=True)
    ...         return a / keras.ops.sqrt(mean_square)
    >>> table = invariance_table(kinds=(), layer=RMSDense(8, name="rms"))
    >>> table.verdicts["rms"]["single case re-scaling"]
    True
    >>> table.verdicts["rms"]["weight matrix re-centring"]
    False
    """
    received, several = kinds, isinstance(kinds, Iterable)
    # A string is a sequence of its letters, of which none is a kind.
    kinds = list(kinds) if several else []
    if not several or not all(kind in NORMALIZATIONS for kind in kinds):
        raise arguments.wrong(
            "kinds", f"a sequence of any of {NORMALIZATIONS}", received
        )
    epsilon = arguments.check_not_negative("epsilon", epsilon)
    if arguments.check_positive_integer("units", units) < 2:
        raise ValueError(
            "Argument `units` must be at least 2: layer normalisation of a "
            f"single unit is always zero. Received: units={units}"
        )
    rng = np.random.default_rng(arguments.check_integer("seed", seed))
    dtype = _check_dtype("dtype", dtype or keras.config.floatx())
    kernel = rng.normal(size=(_FEATURES, units)).astype(dtype)
    measured = {
        kind: _measure(_call_of_kind(kind, epsilon), kernel, kind, epsilon, rng)
        for kind in kinds
    }
    if layer is not None:
        name = getattr(layer, "name", type(layer).__name__)
        measured[name] = _measure_layer(layer, epsilon, training, rng)
    return InvarianceTable(
        verdicts={
            kind: {c: row[c] <= bound[c] for c in _CHANGES}
            for kind, (row, bound) in measured.items()
        },
        deviations={kind: row for kind, (row, _) in measured.items()},
        bounds={kind: bound for kind, (_, bound) in measured.items()},
    )


def _check_dtype(name: str, dtype: Any) -> str:
    dtype = keras.backend.standardize_dtype(dtype)
    if dtype not in ("float32", "float64"):
        raise ValueError(
            f"Argument `{name}` must be (of dtype) float32 or float64: the "
            "rounding of others is too coarse for a verdict. Received: "
            f"{dtype}"
        )
    return dtype


def _call_of_kind(kind: str, epsilon: float) -> Callable[[Any, Any], Any]:
    def call(kernel: Any, x: Any) -> Any:
        return normalized_summed_inputs(
            keras.ops.convert_to_tensor(x),
            keras.ops.convert_to_tensor(kernel),
            kind,
            epsilon,
        )

    return call


def _measure_layer(
    layer: Any, epsilon: float, training: bool | None, rng: np.random.Generator
) -> tuple[dict[str, float], dict[str, float]]:
    options = {} if training is None else {"training": training}
    if isinstance(layer, keras.layers.Layer) and not layer.built:
        layer(keras.ops.ones((_EXAMPLES, _FEATURES)), **options)
    variable: Any = getattr(layer, "kernel", None)
    if not hasattr(variable, "assign") or len(variable.shape) != 2:
        raise ValueError(
            "Argument `layer` must have a `kernel`, a variable of shape "
            f"(features, units). Received: {layer!r} with kernel {variable!r}"
        )
    _check_dtype("layer", variable.dtype)
    kernel = np.array(keras.ops.convert_to_numpy(variable))

    def call(kernel: Any, x: Any) -> Any:
        variable.assign(kernel)
        return layer(keras.ops.convert_to_tensor(x), **options)

    try:
        return _measure(call, kernel, None, epsilon, rng)
    finally:
        variable.assign(kernel)


def _measure(
    call: Callable[[Any, Any], Any],
    kernel: np.ndarray,  # (D, H)
    kind: str | None,
    epsilon: float,
    rng: np.random.Generator,
) -> tuple[dict[str, float], dict[str, float]]:
    """Deviations and their bounds, by column."""
    features, units = kernel.shape
    # The mean is not zero: data of mean zero would look re-centred already.
    x = rng.normal(size=(_EXAMPLES, features)) + rng.normal(size=features)
    gamma = rng.normal(size=features)

    def outputs(change: str, *changed: np.ndarray) -> np.ndarray:
        y = call(*(array.astype(kernel.dtype) for array in changed))
        y = keras.ops.convert_to_numpy(y)
        if not np.isfinite(y).all():
            raise ValueError(
                f"The outputs are not finite ({change}). With epsilon=0 "
                "constant summed inputs are divided by their deviation of 0. "
                "Received: "
                f"kernel of shape {kernel.shape}, epsilon={epsilon}"
            )
        return y

    before = outputs("unchanged", kernel, x)
    size = np.abs(before).max()
    # Of the dtype of the outputs: JAX without 64 bits computes in fewer bits
    # than asked for. An entry sums D products, a statistic H terms.
    eps = float(np.finfo(_check_dtype("layer", before.dtype)).eps)
    rounding = 32 * (features + units) * eps
    deviations, bounds = {}, {}
    for name, change in _CHANGES.items():
        changed = change(kernel, x, gamma)
        difference = outputs(name, *changed) - before
        deviations[name] = float(np.abs(difference).max() / size)
        bounds[name] = rounding
        if epsilon > 0:
            axes = _AXES.get(kind or "", (0, 1))
            bounds[name] += _residual((kernel, x), changed, axes, epsilon)
    return deviations, bounds


def _residual(
    old: tuple[np.ndarray, np.ndarray],
    new: tuple[np.ndarray, np.ndarray],
    axes: Sequence[int],
    epsilon: float,
) -> float:
    """The largest `epsilon/2 |1/var - 1/var'|` of two (kernel, x)."""
    found = [0.0]
    for axis in axes:
        variances = [(x @ kernel).var(axis) for kernel, x in (old, new)]
        least = min(v.min() for v in variances)
        if least <= 10 * epsilon:
            raise ValueError(
                "Argument `epsilon` must be small against the variances of "
                "the summed inputs, or no verdict is possible. Received: "
                f"epsilon={epsilon}, least variance {least:.2g}"
            )
        difference = 1 / variances[0] - 1 / variances[1]
        found.append(float(epsilon / 2 * np.abs(difference).max()))
    return max(found)
