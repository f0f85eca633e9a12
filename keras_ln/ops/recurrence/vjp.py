"""The scan backward in time: the gradients of the scan forward, by hand.

Outside the loop over time stand the products that give the gradients of the
kernels and of the inputs, one each. Letters: B batch, T time, D input
features, U units, n gates.
"""

import functools
import itertools
from typing import Any, NamedTuple

import keras

from keras_ln import backend
from keras_ln.ops.recurrence.forward import flipped, in_order_of_visits
from keras_ln.ops.recurrence.problem import Plan
from keras_ln.ops.recurrence.step import h_for_product
from keras_ln.ops.recurrence.zoneout import apply_zoneout_vjp


class _Loop(NamedTuple):
    """What all steps have in common."""

    plan: Plan
    # Whether the loop computes only what the next step needs, and gives the
    # cotangents of the new states. The other gradients are computed from them
    # after it, of all steps at once: more arithmetic in fewer kernels.
    lean: bool
    weights: dict[str, Any]
    transposed: Any  # the recurrent kernel (nU, U)
    recurrent_mask: Any  # dropout mask of h (B, U), or None
    dtype: Any  # of the products

    @property
    def vectors(self) -> list[str]:
        """The names of the weights that are no matrices."""
        return [n for n, w in self.weights.items() if len(w.shape) == 1]

    def widen(self, x: Any) -> Any:
        """The tensor in the dtype of the computation."""
        return backend.cast(x, self.plan.settings.dtype)


def vjp(
    plan: Plan, lean: bool, residuals: Any, cotangents: Any
) -> tuple[Any, ...]:
    """Gradients of the tensors that `forward` takes; `lean`: see `_Loop`."""
    args, projected, statistics, (previous, from_h) = residuals
    sequences, states, weights, dropout_masks, per_step, reset_states = args
    input_mask, recurrent_mask = dropout_masks
    inputs, rows = in_order_of_visits(plan, sequences, input_mask, per_step)
    transposed = keras.ops.transpose(weights["recurrent_kernel"])
    loop = _Loop(
        plan, lean, weights, transposed, recurrent_mask, sequences.dtype
    )
    factors = _factors(loop, projected, statistics, previous, from_h, rows[1])
    made = (projected, from_h, previous, factors)
    d_outputs, d_states, _ = cotangents
    if d_outputs is not None:
        d_outputs = keras.ops.transpose(d_outputs, (1, 0, 2))
    (d_first, d_vectors, d_resets), from_loop = backend.scan(
        functools.partial(_visit_vjp, loop),
        _carry(loop, d_states, reset_states),
        (made, rows, d_outputs),
        reverse=True,
    )
    d_products = keras.tree.map_structure(_flat, from_loop)
    if lean:
        # The loop gave cotangents of states, which are zero where a mask leaves
        # a row out, and where a unit keeps its state.
        made = keras.tree.map_structure(_flat, made)
        d_products, _, d_vectors = _step_vjp(loop, made, d_products, None, None)
    h = h_for_product(previous[0], loop.dtype, recurrent_mask)
    d_weights = _weight_gradients(loop, inputs, h, d_products, d_vectors)
    d_inputs = backend.matmul(
        d_products[0], keras.ops.transpose(weights["kernel"])
    )
    d_inputs = keras.ops.reshape(d_inputs, keras.ops.shape(inputs))
    if input_mask is not None:
        d_inputs = d_inputs * input_mask
    if plan.go_backwards:
        d_inputs = flipped(d_inputs)
    return (
        keras.ops.transpose(d_inputs, (1, 0, 2)),
        _cast_like(d_first, states),
        d_weights,
        None,
        None,
        None if d_resets is None else _cast_like(d_resets, reset_states),
    )


def _factors(
    loop: _Loop,
    projected: Any,
    statistics: Any,
    previous: tuple[Any, ...],
    from_h: Any,
    moving: Any,
) -> dict[str, Any]:
    """The factors of the norms by site, of all steps at once.

    So the loop over time has less to do.
    """
    cell, settings, widen = loop.plan.cell, loop.plan.settings, loop.widen
    norms = cell.norms(loop.weights, settings, None, moving)
    if loop.lean:
        wide = tuple(map(widen, previous))
        _, statistics = cell.step(
            widen(projected), widen(from_h), wide, settings, norms
        )
    return {
        site: norms.factors(*of_site)
        for site, of_site in statistics.items()
        if of_site is not None
    }


def _carry(loop: _Loop, d_states: Any, reset_states: Any) -> tuple[Any, ...]:
    """What the loop starts with: d_states, and zeros to add to."""
    widen, d_vectors, d_resets = loop.widen, None, None
    if loop.vectors and not loop.lean:
        joined = [widen(loop.weights[name]) for name in loop.vectors]
        d_vectors = keras.ops.zeros_like(keras.ops.concatenate(joined))
    if reset_states is not None:
        d_resets = tuple(
            keras.ops.zeros_like(widen(state)) for state in reset_states
        )
    return tuple(map(widen, d_states)), d_vectors, d_resets


def _visit_vjp(loop: _Loop, carry: Any, row: Any) -> tuple[Any, Any]:
    """The gradient of `visit`.

    Args:
        loop: see there.
        carry: cotangents of the states after the step (B, U), and the sums so
            far of the gradients of the vectors, in one array, and of the
            states of resets (B, U); or None.
        row: what `visit` made of the step, what it got for it, and the
            cotangent of its output (B, U) or None.

    Returns:
        The carry before the step, and the cotangents of its products, in a
        `lean` loop of its new states.
    """
    d_states, d_vectors, d_resets = carry
    made, (valid, moving, choices, start), d_output = row
    widen, plan = loop.widen, loop.plan
    if d_output is not None:
        d_states = (d_states[0] + widen(d_output), *d_states[1:])
    d_skipped = d_zoned = (None,) * len(d_states)
    # At a masked step a row's cotangents bypass the step.
    if valid is not None:
        d_skipped = tuple(backend.where(valid, 0.0, d) for d in d_states)
        d_states = tuple(backend.where(valid, d, 0.0) for d in d_states)
    if plan.zoneout or choices is not None:
        d_states, d_zoned = apply_zoneout_vjp(d_states, plan.zoneout, choices)
    d_products, d_direct, more = _step_vjp(loop, made, d_states, valid, moving)
    d_h = widen(backend.matmul(d_products[1], loop.transposed))
    if loop.recurrent_mask is not None:
        d_h = d_h * widen(loop.recurrent_mask)
    d_through = (d_h, *[None] * (len(d_states) - 1))
    d_previous = tuple(map(_sum, d_through, d_direct, d_skipped, d_zoned))
    if start is not None:
        # No cotangent passes a start; the state that came in gets it.
        if d_resets is not None:
            d_resets = tuple(
                total + backend.where(start, d, 0.0)
                for total, d in zip(d_resets, d_previous, strict=True)
            )
        d_previous = tuple(backend.where(start, 0.0, d) for d in d_previous)
    if loop.lean:
        return (d_previous, None, d_resets), d_states
    if more is not None:
        d_vectors = d_vectors + more
    return (d_previous, d_vectors, d_resets), d_products


def _step_vjp(
    loop: _Loop, made: Any, d_states: Any, valid: Any, moving: Any
) -> tuple[Any, Any, Any]:
    """Gradients of one step, or of the rows of all steps at once.

    Returns:
        Gradients of the products x W and h R (B, nU), of the states apart from
        h R, and of the vectors in one array, or None.
    """
    projected, from_h, states, factors = made
    cell, settings, widen = loop.plan.cell, loop.plan.settings, loop.widen
    d_from_x, d_from_h, d_direct, d_vectors = cell.step_vjp(
        widen(projected),
        widen(from_h),
        tuple(map(widen, states)),
        settings,
        cell.norms(loop.weights, settings, valid, moving),
        factors,
        d_states,
    )
    cast = backend.cast
    d_products = (cast(d_from_x, loop.dtype), cast(d_from_h, loop.dtype))
    # In one array, so that the loop adds once.
    joined = None
    if names := loop.vectors:
        joined = keras.ops.concatenate([d_vectors[name] for name in names])
    return d_products, d_direct, joined


def _weight_gradients(
    loop: _Loop, inputs: Any, h: Any, d_products: Any, d_vectors: Any
) -> dict[str, Any]:
    """Gradients of all weights, from the cotangents of all products."""
    sizes = [loop.weights[name].shape[0] for name in loop.vectors]
    places = itertools.pairwise(itertools.accumulate(sizes, initial=0))
    gradients = {
        name: d_vectors[start:end]
        for name, (start, end) in zip(loop.vectors, places, strict=True)
    }
    gradients["kernel"] = _product(inputs, d_products[0])
    gradients["recurrent_kernel"] = _product(h, d_products[1])
    return {
        name: backend.cast(gradients[name], weight.dtype)
        for name, weight in loop.weights.items()
    }


def _cast_like(gradients: tuple[Any, ...], states: Any) -> tuple[Any, ...]:
    return tuple(
        backend.cast(d, state.dtype)
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
