"""The scan backward in time: hand-written gradients of the scan forward.

The gradients of the kernels and of the inputs are one product each, computed
after the loop over time. Letters: B batch, T time, D input features, U units,
n gates.
"""

import functools
import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

import keras

from keras_ln import backend
from keras_ln.engine.scan import (
    h_for_product,
    in_order_of_visits,
    moving_in,
    named_statistics,
    previous,
)
from keras_ln.engine.spec import ARRAYS, Spec, Tensors
from keras_ln.engine.zoneout import apply_zoneout_vjp


class _Loop(NamedTuple):
    """The inputs that all steps share."""

    spec: Spec
    weights: Tensors
    transposed: Any  # the recurrent kernel (nU, U)
    recurrent_mask: Any  # dropout mask of h (B, U), or None
    dtype: Any  # of the products
    sites: list[str]  # that are normalised

    @property
    def vectors(self) -> list[str]:
        """The names of the weights that are no matrices."""
        return [n for n, w in self.weights.items() if len(w.shape) == 1]

    def widen(self, x: Any) -> Any:
        """The tensor in the dtype of the computation."""
        return backend.cast(x, self.spec.accumulator_dtype)


def vjp(spec: Spec, residuals: Tensors, cotangents: Tensors) -> Tensors:
    """Gradients of the arrays of `forward`, by name."""
    cell, x = spec.cell, residuals["x"]
    weights = {n: residuals[n] for n in cell.weights if n in residuals}
    recurrent_mask = residuals.get("recurrent_mask")
    inputs, rows = in_order_of_visits(spec, residuals)
    transposed = backend.transpose(weights["recurrent_kernel"])
    sites = [
        vector.site
        for vector in cell.vectors
        if vector.site is not None and vector.name in weights
        if vector.name.endswith("gamma")
    ]
    loop = _Loop(spec, weights, transposed, recurrent_mask, x.dtype, sites)
    # All that the loop forward kept, or what the gradient of any loop needs.
    names: Iterable[str] = ("x_product", "h_product", *previous(cell))
    if spec.fused_norms:
        names = residuals.keys() - {*ARRAYS, *cell.weights}
    visits = {name: residuals[name] for name in names}
    visits |= _factors(loop, visits, residuals, moving_in(rows))
    rows |= visits
    if "outputs" in cotangents:
        d_outputs = backend.transpose(cotangents["outputs"], (1, 0, 2))
        rows["d_outputs"] = d_outputs
    carry, from_loop = backend.scan(
        functools.partial(_visit_vjp, loop),
        _first_carry(loop, residuals, cotangents),
        rows,
        reverse=True,
    )
    from_loop = {name: flat_rows(rows) for name, rows in from_loop.items()}
    d_vectors = carry.get("d_vectors")
    if spec.fused_norms:
        each = [backend.sum(from_loop[f"d_{n}"], 0) for n in loop.vectors]
        d_vectors = keras.ops.concatenate(each) if each else None
    if spec.recompute_in_backward:
        # The loop gave cotangents of states, which are zero for masked rows and
        # for units that keep their state.
        d_states = tuple(from_loop[f"d_{name}"] for name in cell.states)
        flat = {name: flat_rows(rows) for name, rows in visits.items()}
        from_loop, _, d_vectors = _step_vjp(loop, flat, d_states)
    h = h_for_product(visits["previous_h"], loop.dtype, recurrent_mask)
    gradients = _weight_gradients(loop, inputs, h, from_loop, d_vectors)
    d_inputs = backend.matmul(
        from_loop["d_x_product"], backend.transpose(weights["kernel"])
    )
    d_inputs = backend.reshape(d_inputs, keras.ops.shape(inputs))
    if "input_mask" in residuals:
        d_inputs = d_inputs * residuals["input_mask"]
    if spec.go_backwards:
        d_inputs = keras.ops.flip(d_inputs, axis=0)
    gradients["x"] = backend.transpose(d_inputs, (1, 0, 2))
    for name in carry:
        state = name.removeprefix("d_").replace("previous", "initial")
        if state in residuals:
            dtype = residuals[state].dtype
            gradients[state] = backend.cast(carry[name], dtype)
    return gradients


def _factors(
    loop: _Loop, visits: Tensors, residuals: Tensors, moving: Any
) -> Tensors:
    """The factors of the norms by site, for all steps at once.

    This leaves less work to the loop over time.
    """
    spec, cell = loop.spec, loop.spec.cell
    norms = spec.norms(loop.weights, spec, None, moving)
    factors: Tensors = {}
    if spec.fused_norms:
        of_products = {"kernel": "x_product", "recurrent": "h_product"}
        for site in loop.sites:
            names = (f"{site}_center", f"{site}_scale")
            z = of_products.get(site, f"{site}_z")
            found = norms.factors_of_steps(visits[z], *map(visits.get, names))
            factors |= zip((*names, z), found, strict=True)
        return factors
    statistics = residuals
    if spec.recompute_in_backward:
        _, by_site = cell.step(
            loop.widen(visits["x_product"]),
            loop.widen(visits["h_product"]),
            tuple(loop.widen(visits[name]) for name in previous(cell)),
            spec,
            norms,
        )
        statistics = named_statistics(by_site)
    for site in loop.sites:
        mean = statistics[f"{site}_mean"]
        of_site = norms.factors(mean, statistics[f"{site}_variance"])
        names = (f"{site}_center", f"{site}_scale")
        factors |= zip(names, of_site, strict=True)
    return factors


def _first_carry(
    loop: _Loop, residuals: Tensors, cotangents: Tensors
) -> Tensors:
    """The loop's first carry: cotangents of states, and sums at zero."""
    widen, carry = loop.widen, {}
    for name in loop.spec.cell.states:
        carry[f"d_previous_{name}"] = widen(cotangents[f"final_{name}"])
        if (state := f"reset_{name}") in residuals:
            carry[f"d_{state}"] = keras.ops.zeros_like(widen(residuals[state]))
    spec = loop.spec
    if loop.vectors and not (spec.recompute_in_backward or spec.fused_norms):
        joined = [widen(loop.weights[name]) for name in loop.vectors]
        carry["d_vectors"] = keras.ops.zeros_like(keras.ops.concatenate(joined))
    return carry


def _visit_vjp(
    loop: _Loop, carry: Tensors, row: Tensors
) -> tuple[Tensors, Tensors]:
    """The gradient of a visit.

    Args:
        loop: see `_Loop`.
        carry: `d_previous_h` and `d_previous_c`, cotangents of the states after
            the step (B, U), and the sums so far of the gradients of the states
            of resets (B, U), and of the vectors, in one array.
        row: the arguments and results of the forward visit, and the cotangent
            of its output (B, U).

    Returns:
        The carry before the step, and the cotangents of its products, or with
        `recompute_in_backward` of its new states.
    """
    spec, widen, names = loop.spec, loop.widen, loop.spec.cell.states
    d_states = tuple(carry[f"d_previous_{name}"] for name in names)
    if "d_outputs" in row:
        d_states = (d_states[0] + widen(row["d_outputs"]), *d_states[1:])
    d_skipped = (None,) * len(d_states)
    # At a masked step a row's cotangents bypass the step.
    if (valid := row.get("mask")) is not None:
        d_skipped = tuple(backend.where(valid, 0.0, d) for d in d_states)
        d_states = tuple(backend.where(valid, d, 0.0) for d in d_states)
    d_states, d_zoned = apply_zoneout_vjp(spec.shares, d_states, row)
    products, d_direct, d_vectors = _step_vjp(loop, row, d_states)
    d_h = widen(backend.matmul(products["d_h_product"], loop.transposed))
    if loop.recurrent_mask is not None:
        d_h = d_h * widen(loop.recurrent_mask)
    d_through = (d_h, *[None] * (len(d_states) - 1))
    d_previous = tuple(map(_sum, d_through, d_direct, d_skipped, d_zoned))
    carry = dict(carry)
    if (start := row.get("reset")) is not None:
        # No cotangent passes a reset; the state after the reset gets it.
        for name, d in zip(names, d_previous, strict=True):
            if (total := f"d_reset_{name}") in carry:
                carry[total] = carry[total] + backend.where(start, d, 0.0)
        d_previous = tuple(backend.where(start, 0.0, d) for d in d_previous)
    for name, d in zip(names, d_previous, strict=True):
        carry[f"d_previous_{name}"] = d
    if spec.recompute_in_backward:
        pairs = zip(names, d_states, strict=True)
        return carry, {f"d_{name}": d for name, d in pairs}
    if spec.fused_norms:
        return carry, products | {f"d_{n}": d for n, d in d_vectors.items()}
    if d_vectors is not None:
        carry["d_vectors"] = carry["d_vectors"] + d_vectors
    return carry, products


def _step_vjp(
    loop: _Loop, visit: Tensors, d_states: tuple[Any, ...]
) -> tuple[Tensors, Any, Any]:
    """Gradients of one step, or of the rows of all steps at once.

    Returns:
        Gradients of the products x W and h R (B, nU) by name, of the states
        except through h R, and of the vectors in one array, or None; with
        `fused_norms` by name.
    """
    spec, cell, widen = loop.spec, loop.spec.cell, loop.widen
    factors = {
        site: (visit[f"{site}_center"], visit[f"{site}_scale"])
        for site in loop.sites
    }
    d_x_product, d_h_product, d_direct, d_vectors = cell.step_vjp(
        widen(visit["x_product"]),
        widen(visit["h_product"]),
        tuple(widen(visit[name]) for name in previous(cell)),
        spec,
        spec.norms(
            loop.weights,
            spec,
            visit.get("mask"),
            moving_in(visit) if cell.batch_statistics else None,
            visit if spec.fused_norms else None,
        ),
        factors,
        d_states,
    )
    products = {
        "d_x_product": backend.cast(d_x_product, loop.dtype),
        "d_h_product": backend.cast(d_h_product, loop.dtype),
    }
    if spec.fused_norms:
        return products, d_direct, d_vectors
    # In one array, so that the loop adds once.
    joined = None
    if names := loop.vectors:
        joined = keras.ops.concatenate([d_vectors[name] for name in names])
    return products, d_direct, joined


def _weight_gradients(
    loop: _Loop, inputs: Any, h: Any, d_products: Tensors, d_vectors: Any
) -> Tensors:
    """Gradients of all weights, from the cotangents of all products."""
    sizes = [loop.weights[name].shape[0] for name in loop.vectors]
    places = itertools.pairwise(itertools.accumulate(sizes, initial=0))
    gradients = {
        name: d_vectors[start:end]
        for name, (start, end) in zip(loop.vectors, places, strict=True)
    }
    gradients["kernel"] = _product(inputs, d_products["d_x_product"])
    gradients["recurrent_kernel"] = _product(h, d_products["d_h_product"])
    return {
        name: backend.cast(gradients[name], weight.dtype)
        for name, weight in loop.weights.items()
    }


def _sum(*terms: Any) -> Any:
    first, *rest = [term for term in terms if term is not None]
    return functools.reduce(lambda a, b: a + b, rest, first)


def flat_rows(rows: Any) -> Any:
    """Rows (T, B, ...) or (B, T, ...) of all steps, one after the other."""
    return backend.reshape(rows, (-1, rows.shape[-1]))


def _product(left: Any, right: Any) -> Any:
    """Sum over steps and rows of outer products, (T, B, M) with (TB, N)."""
    return backend.matmul(backend.transpose(flat_rows(left)), right)
