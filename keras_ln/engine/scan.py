"""The scan forward in time, and one step of it.

The input product is computed before the loop over time, for all steps at once.
Letters: B batch, T time, D input features, U units, n gates.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras

from keras_ln import backend
from keras_ln.engine import dtypes
from keras_ln.engine.spec import (
    ARRAYS,
    Cell,
    Overridden,
    Spec,
    Tensors,
    spec_of,
)
from keras_ln.engine.zoneout import NAMES, apply_zoneout


class Loop(NamedTuple):
    """The inputs that all steps of a run share."""

    spec: Spec
    # All given arrays.
    arrays: Tensors
    weights: Tensors
    # The states after a reset (B, U), h first.
    reset_states: tuple[Any, ...]
    # Whether a gradient needs the states and the products of every step.
    keep: bool
    # Whether a gradient or the caller needs the statistics of every step.
    keep_statistics: bool
    # The Keras cell whose step replaces the cell's, or None.
    overridden: Overridden | None


def forward(
    spec: Spec,
    arrays: Tensors,
    *,
    keep: bool = False,
    unroll: bool = False,
    overridden: Overridden | None = None,
) -> tuple[Tensors, Tensors]:
    """The cell over time, for arrays by the names in `ARRAYS`.

    Masked steps keep the states: before the first valid step these are the
    initial states, on every backend.

    Returns:
        Outputs and residuals by name. Outputs are `outputs` (B, T, U) in the
        order of the visits, with `return_all_outputs`; the states `final_h` and
        `final_c` (B, U); and for a cell with batch statistics `{site}_mean` and
        `{site}_variance` (T, ...). With `keep` the residuals are the arguments
        of `vjp`, else {}.
    """
    cell = spec.cell
    weights = {n: a for n, a in arrays.items() if n not in ARRAYS}
    before = {name: arrays[f"initial_{name}"] for name in cell.states}
    inputs, rows = in_order_of_visits(spec, arrays)
    if overridden is not None:
        x_product = overridden.keras_cell.project(inputs, weights)
    else:
        x_product = project(inputs, weights)
    resets: tuple[Any, ...] = ()
    if "reset" in arrays:
        resets = tuple(
            arrays[f"reset_{name}"]
            if f"reset_{name}" in arrays
            else keras.ops.zeros_like(before[name])
            for name in cell.states
        )
    statistics_too = cell.batch_statistics or (
        keep and not (spec.recompute_in_backward or spec.fused_norms)
    )
    loop = Loop(spec, arrays, weights, resets, keep, statistics_too, overridden)
    final, results = (_unrolled if unroll else backend.scan)(
        functools.partial(_visit, loop),
        before,
        {"x_product": x_product, **rows},
    )
    outputs = {f"final_{name}": final[name] for name in cell.states}
    if spec.return_all_outputs:
        outputs["outputs"] = backend.transpose(
            results.pop("outputs"), (1, 0, 2)
        )
    if cell.batch_statistics:
        ends = ("_mean", "_variance")
        outputs |= {n: results[n] for n in results if n.endswith(ends)}
    if not keep:
        return outputs, {}
    return outputs, {**arrays, "x_product": x_product, **results}


def in_order_of_visits(spec: Spec, arrays: Tensors) -> tuple[Any, Tensors]:
    """The arrays that the loop visits, from the first row to the last.

    They are flipped for `go_backwards`, because tf2onnx takes everything that a
    loop writes for its outputs in the order of its steps.

    Returns:
        The inputs of the product (T, B, D), and by name the mask and the resets
        (T, B, 1), choices (T, B, U) and the statistics (T, ...).
    """
    inputs = backend.transpose(arrays["x"], (1, 0, 2))
    if "input_mask" in arrays:
        inputs = inputs * arrays["input_mask"]
    rows: Tensors = {
        name: keras.ops.swapaxes(arrays[name], 0, 1)[..., None]
        for name in ("mask", "reset")
        if name in arrays
    }
    rows |= {
        name: keras.ops.swapaxes(arrays[name], 0, 1)
        for name in NAMES
        if name in arrays
    }
    if spec.go_backwards:
        inputs = keras.ops.flip(inputs, axis=0)
        rows = {n: keras.ops.flip(row, axis=0) for n, row in rows.items()}
    return inputs, rows | {n: arrays[n] for n in arrays if "_moving_" in n}


def _visit(
    loop: Loop, states: Tensors, row: Tensors
) -> tuple[Tensors, Tensors]:
    """One step over time, with its mask and its resets.

    Args:
        loop: see `Loop`.
        states: tensors (B, U) before the step, by name.
        row: `x_product`, x W (B, nU), and the step's rows from
            `in_order_of_visits`: `mask` (B, 1), False for rows that keep their
            states; `reset` (B, 1), True for rows whose states are replaced
            before the step; choices and statistics.

    Returns:
        The states, each in its dtype, and the step's results by name:
        `outputs` (B, U), and for the gradient the product h R (B, nU) as
        `h_product`, the states before the step, and the statistics.
    """
    spec, cell = loop.spec, loop.spec.cell
    before = tuple(states[name] for name in cell.states)
    if "reset" in row:
        before = tuple(
            backend.where(row["reset"], new, old)
            for new, old in zip(loop.reset_states, before, strict=True)
        )
    results: Tensors = {}
    valid = row.get("mask")
    recurrent_mask = loop.arrays.get("recurrent_mask")
    if loop.overridden is not None:
        after = loop.overridden.keras_cell.step(
            row["x_product"], before, loop.weights, recurrent_mask
        )
    else:
        kept: Tensors | None = {} if loop.keep and spec.fused_norms else None
        after, statistics, h_product = run_step(
            spec,
            row["x_product"],
            before,
            loop.weights,
            recurrent_mask=recurrent_mask,
            valid=valid,
            moving=moving_in(row) if cell.batch_statistics else None,
            kept=kept,
        )
        results |= kept or {}
        if loop.keep_statistics:
            results |= named_statistics(statistics)
        if loop.keep:
            results["h_product"] = h_product
            results |= zip(previous(cell), before, strict=True)
    after = apply_zoneout(spec.shares, after, before, row)
    if valid is not None:
        after = tuple(
            backend.where(valid, new, old)
            for new, old in zip(after, before, strict=True)
        )
    if spec.return_all_outputs:
        results["outputs"] = backend.cast(after[0], loop.arrays["x"].dtype)
    return dict(zip(cell.states, after, strict=True)), results


def moving_in(arrays: Tensors) -> dict[str, tuple[Any, Any]] | None:
    """Mean and variance by site, or None without such statistics."""
    end = "_moving_mean"
    sites = [name.removesuffix(end) for name in arrays if name.endswith(end)]
    return {
        site: (arrays[f"{site}{end}"], arrays[f"{site}_moving_variance"])
        for site in sites
    } or None


def previous(cell: Cell) -> list[str]:
    """The names of the states before each step, h first."""
    return [f"previous_{name}" for name in cell.states]


def named_statistics(statistics: Mapping[str, Any]) -> Tensors:
    """`{site}_mean` and `{site}_variance` of the sites that are normalised."""
    return {
        f"{site}_{kind}": tensor
        for site, of_site in statistics.items()
        if of_site is not None
        for kind, tensor in zip(("mean", "variance"), of_site, strict=True)
    }


def run_step(
    spec: Spec,
    x_product: Any,  # x W (B, nU)
    states: tuple[Any, ...],  # tensors (B, U), h first
    weights: Tensors,  # recurrent_kernel (P, nU), and the others
    *,
    recurrent_mask: Any = None,  # dropout mask of h (B, U), scaled
    valid: Any = None,  # these three: see `Cell.norms`
    moving: Any = None,
    kept: Tensors | None = None,
) -> tuple[tuple[Any, ...], Any, Any]:
    """One step of the cell, computed in the wide dtype.

    Returns:
        The new states, each in the dtype of the old one, the statistics of
        the step, and the product h R (B, nU).
    """
    h = h_for_product(states[0], x_product.dtype, recurrent_mask)
    h_product = backend.matmul(h, weights["recurrent_kernel"])
    widen = functools.partial(backend.cast, dtype=spec.accumulator_dtype)
    new_states, statistics = spec.cell.step(
        widen(x_product),
        widen(h_product),
        tuple(map(widen, states)),
        spec,
        spec.norms(weights, spec, valid, moving, kept),
    )
    if spec.projection:
        m, *others = new_states
        m = backend.cast(m, x_product.dtype)
        new_states = (backend.matmul(m, weights["projection_kernel"]), *others)
    new_states = tuple(
        backend.cast(new, old.dtype)
        for new, old in zip(new_states, states, strict=True)
    )
    return new_states, statistics, h_product


def step(
    cell: Cell,
    x_product: Any,
    states: tuple[Any, ...],
    weights: Tensors,
    *,
    recurrent_mask: Any = None,
    moving: Any = None,
    **settings: Any,
) -> tuple[Any, ...]:
    """The states after one step of the cell, for arguments of `run_step`.

    The settings are arguments of `spec_of`; `moving` is a structure of
    constants (B, ...), or None.
    """
    constants = keras.tree.flatten(moving)
    wide = dtypes.wide_dtype(x_product, *states, *weights.values(), *constants)
    if moving is not None:
        moving = keras.tree.map_structure(
            lambda x: backend.cast(x, wide), moving
        )
    return run_step(
        spec_of(cell, wide, **settings),
        x_product,
        states,
        weights,
        recurrent_mask=recurrent_mask,
        moving=moving,
    )[0]


def project(inputs: Any, weights: Tensors) -> Any:
    """`x W` (..., nU) of inputs (..., D), in their dtype."""
    return backend.matmul(inputs, weights["kernel"])


def h_for_product(h: Any, dtype: Any, recurrent_mask: Any) -> Any:
    """The h (..., B, U) of the product; the carried h may be wider."""
    h = backend.cast(h, dtype)
    if recurrent_mask is None:
        return h
    return h * backend.cast(recurrent_mask, dtype)


def _unrolled(
    step: Callable[[Tensors, Tensors], Any], init: Tensors, xs: Tensors
) -> tuple[Tensors, Tensors]:
    """`backend.scan`, unrolled."""
    length = next(iter(xs.values())).shape[0]
    if length is None or backend.stands_for_unknown(length):
        raise ValueError(
            "`unroll=True` needs a known number of time steps. Received: "
            "inputs of unknown length. Give keras.Input that number, or leave "
            "unroll=False."
        )
    carry, rows = init, []
    for t in range(length):
        carry, y = step(carry, {name: x[t] for name, x in xs.items()})
        rows.append(y)
    return carry, {
        name: keras.ops.stack([row[name] for row in rows]) for name in rows[0]
    }
