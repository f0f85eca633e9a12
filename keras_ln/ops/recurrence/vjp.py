"""The scan backward in time: the gradients of the scan forward, by hand.

Outside the loop over time stand the products that give the gradients of the
kernels and of the inputs, one each. Letters: B batch, T time, D input
features, U units, n gates.
"""

import functools
import itertools
from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.recurrence.forward import (
    h_for_product,
    in_order_of_visits,
    visits,
)
from keras_ln.ops.recurrence.problem import Plan
from keras_ln.ops.recurrence.zoneout import kept_of, zoned_vjp


def vjp(
    plan: Plan, lean: bool, residuals: Any, cotangents: Any
) -> tuple[Any, ...]:
    """Gradients of the tensors that `forward` takes.

    A `lean` loop computes only what the next step needs, and keeps the
    cotangents of the new states. The other gradients are computed from them
    after the loop, of all steps at once: more arithmetic in fewer kernels.
    """
    cell, settings, go_backwards, _, shares = plan
    args, projected, statistics, (previous, from_h) = residuals
    sequences, states, weights, dropout_masks, per_step, reset_states = args
    input_mask, recurrent_mask = dropout_masks
    inputs, per_step = in_order_of_visits(plan, sequences, input_mask, per_step)
    given = per_step[1]
    d_outputs, d_states, _ = cotangents
    if d_outputs is not None:
        d_outputs = keras.ops.transpose(d_outputs, (1, 0, 2))
    dtype = sequences.dtype
    transposed = keras.ops.transpose(weights["recurrent_kernel"])
    widen = settings.widen
    vectors = [name for name, w in weights.items() if len(w.shape) == 1]
    norms = cell.norms(weights, settings.epsilon, None, given, False)
    if lean:
        wide = tuple(widen(state) for state in previous)
        _, statistics = cell.step(
            widen(projected), widen(from_h), wide, settings, norms
        )
    # Of all steps at once, so that the loop has less to do.
    factors = {
        site: norms.factors(*of_site)
        for site, of_site in statistics.items()
        if of_site is not None
    }

    def cell_vjp(kept: Any, d_states: Any, valid: Any, given: Any) -> Any:
        projected, from_h, states, factors = kept
        d_from_x, d_from_h, d_direct, d_vectors = cell.step_vjp(
            widen(projected),
            widen(from_h),
            tuple(map(widen, states)),
            settings,
            cell.norms(weights, settings.epsilon, valid, given, False),
            factors,
            d_states,
        )
        d_products = (
            keras.ops.cast(d_from_x, dtype),
            keras.ops.cast(d_from_h, dtype),
        )
        # In one array, so that the loop adds once.
        joined = None
        if vectors:
            joined = keras.ops.concatenate([d_vectors[n] for n in vectors])
        return d_products, d_direct, joined

    def body(carry: Any, row: Any) -> Any:
        d_states, d_vectors, d_resets = carry
        residuals_t, (valid, given, choices, start), d_output = row
        if d_output is not None:
            d_states = (d_states[0] + widen(d_output), *d_states[1:])
        d_skipped: tuple[Any, ...] = (None,) * len(d_states)
        # At a masked step a row's cotangents bypass the step.
        if valid is not None:
            d_skipped = tuple(keras.ops.where(valid, 0.0, d) for d in d_states)
            d_states = tuple(keras.ops.where(valid, d, 0.0) for d in d_states)
        d_states, d_kept = zoned_vjp(d_states, kept_of(shares, choices))
        d_products, d_direct, more = cell_vjp(
            residuals_t, d_states, valid, given
        )
        d_h = widen(backend.matmul(d_products[1], transposed))
        if recurrent_mask is not None:
            d_h = d_h * widen(recurrent_mask)
        through = (d_h, *[None] * (len(states) - 1))
        d_previous = tuple(map(_sum, through, d_direct, d_skipped, d_kept))
        if start is not None:
            # No cotangent passes a start; the state that came in gets it.
            if d_resets is not None:
                d_resets = tuple(
                    total + backend.where(start, d, 0.0)
                    for total, d in zip(d_resets, d_previous, strict=True)
                )
            d_previous = tuple(backend.where(start, 0.0, d) for d in d_previous)
        if lean:
            return (d_previous, None, d_resets), d_states
        if vectors:
            d_vectors = d_vectors + more
        return (d_previous, d_vectors, d_resets), d_products

    zeros = None
    if vectors and not lean:
        joined = keras.ops.concatenate([widen(weights[n]) for n in vectors])
        zeros = keras.ops.zeros_like(joined)
    kept = (projected, from_h, previous, factors)
    no_resets = None
    if reset_states is not None:
        no_resets = tuple(
            keras.ops.zeros_like(widen(state)) for state in reset_states
        )
    (d_first, d_vectors, d_resets), rows_of_loop = backend.scan(
        body,
        (tuple(widen(d) for d in d_states), zeros, no_resets),
        (kept, per_step, d_outputs),
        reverse=True,
    )
    flat = keras.tree.map_structure(_flat, rows_of_loop)
    if lean:
        # Where a mask leaves a row out, and where a unit keeps its state, the
        # cotangents are zero by now.
        kept = keras.tree.map_structure(_flat, kept)
        flat, _, d_vectors = cell_vjp(kept, flat, None, None)
    d_from_x, d_from_h = flat

    sizes = [weights[name].shape[0] for name in vectors]
    places = itertools.pairwise(itertools.accumulate(sizes, initial=0))
    d_weights = {
        name: d_vectors[start:end]
        for name, (start, end) in zip(vectors, places, strict=True)
    }
    h = h_for_product(previous[0], dtype, recurrent_mask)
    d_weights["kernel"] = _product(inputs, d_from_x)
    d_weights["recurrent_kernel"] = _product(h, d_from_h)
    d_weights = {
        name: keras.ops.cast(d_weights[name], weight.dtype)
        for name, weight in weights.items()
    }
    d_inputs = backend.matmul(d_from_x, keras.ops.transpose(weights["kernel"]))
    d_inputs = keras.ops.reshape(d_inputs, keras.ops.shape(inputs))
    if input_mask is not None:
        d_inputs = d_inputs * input_mask
    d_inputs = visits(d_inputs, go_backwards)
    if d_resets is not None:
        d_resets = _cast_like(d_resets, reset_states)
    return (
        keras.ops.transpose(d_inputs, (1, 0, 2)),
        _cast_like(d_first, states),
        d_weights,
        None,
        None,
        d_resets,
    )


def _cast_like(gradients: tuple[Any, ...], states: Any) -> tuple[Any, ...]:
    return tuple(
        keras.ops.cast(d, state.dtype)
        for d, state in zip(gradients, states, strict=True)
    )


def _sum(*terms: Any) -> Any:
    first, *rest = [term for term in terms if term is not None]
    return functools.reduce(lambda a, b: a + b, rest, first)


def _flat(rows: Any) -> Any:
    """Rows (T, B, ...) of all steps, one after the other; or None."""
    if rows is None:
        return None
    return keras.ops.reshape(rows, (-1, rows.shape[-1]))


def _product(left: Any, right: Any) -> Any:
    """Sum over steps and rows of outer products, (T, B, M) with (TB, N)."""
    return backend.matmul(keras.ops.transpose(_flat(left)), right)
