"""A cell's step and its gradient, turned into one op for a whole sequence.

Outside the loop over time stand the input product, for all steps at once,
and the products that give the gradients of the kernels and of the inputs,
one each. Letters: B batch, T time, D input features, U units, n gates.
"""

import functools
import itertools
from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.cell import Cell, Settings, project, run_step, shown
from keras_ln.ops.sequence_arguments import check_masks
from keras_ln.ops.support import needs_plain_ops


def run(
    cell: Cell,
    sequences: Any,
    states: tuple[Any, ...],
    weights: dict[str, Any],
    settings: Settings,
    *,
    mask: Any = None,
    input_mask: Any = None,
    recurrent_mask: Any = None,
    given: Any = None,
    go_backwards: bool = False,
    return_all_outputs: bool = True,
    training: bool = True,
) -> tuple[Any, Any, tuple[Any, ...], Any]:
    """The cell over time, as one op with a hand-written gradient.

    At a step that the mask leaves out, the states stay and the output is the
    h that is carried.

    Args:
        cell: its maths.
        sequences: tensor (B, T, D).
        states: those before the first step, tensors (B, U), h first. A state
            keeps its dtype.
        weights: kernel (D, nU), recurrent_kernel (U, nU) and the cell's
            vectors, by name.
        settings: see there; the activations must have derivatives.
        mask: bool tensor (B, T), False where a row's step is left out; or
            None.
        input_mask: dropout mask of the inputs (B, D), scaled, or None. Both
            dropout masks are constants: they have no gradient.
        recurrent_mask: dropout mask of h (B, U), scaled, or None.
        given: for `Cell.norms`, a structure of constants (T, ...) in the
            order of the visits, or None.
        go_backwards: visit the last step first.
        return_all_outputs: whether to keep the outputs of every step.
        training: whether a gradient is likely to be asked for. What it needs
            is then kept; else a gradient runs the sequence again.

    Returns:
        `(last_output, outputs, final_states, statistics)`. The outputs are
        those of each step (B, T, U), or without `return_all_outputs` those of
        the last one (B, 1, U), in the dtype of the sequences. Outputs and
        statistics (T, ...) come in the order of the visits. The statistics
        have no gradient; they are {} where the cell gives none.

    Raises:
        ValueError: for a mask of another shape.
    """
    mask, input_mask, recurrent_mask = check_masks(
        sequences,
        weights["recurrent_kernel"].shape[0],
        mask,
        input_mask,
        recurrent_mask,
    )
    valid = None
    if mask is not None:
        valid = keras.ops.swapaxes(mask, 0, 1)[..., None]
    # What a step costs on other devices is less its arithmetic than the
    # number of kernels that it launches.
    lean = not (backend.on_cpu() or cell.gives_statistics)
    static = (cell, settings, go_backwards, return_all_outputs)
    args: tuple[Any, ...] = (
        sequences,
        tuple(states),
        weights,
        (input_mask, recurrent_mask),
        (valid, _visits(given, go_backwards)),
    )
    if needs_plain_ops():
        results, _ = sequence_forward(*static, *args)
    else:
        results = _operation(*static, lean, training)(*args)
    outputs, states, statistics = results
    last_output = keras.ops.cast(states[0], sequences.dtype)
    if outputs is None:
        outputs = last_output[:, None]
    return last_output, outputs, tuple(states), statistics


@functools.cache
def _operation(
    cell: Cell,
    settings: Settings,
    go_backwards: bool,
    return_all_outputs: bool,
    lean: bool,
    training: bool,
) -> Any:
    static = (cell, settings, go_backwards, return_all_outputs)

    def forward(*args: Any, keep: bool = True, value_only: bool = lean) -> Any:
        return sequence_forward(
            *static, *args, lean=lean, keep=keep, value_only=value_only
        )

    def backward(residuals: Any, cotangents: Any) -> Any:
        return sequence_vjp(
            cell, settings, go_backwards, lean, residuals, cotangents
        )

    differentiable = functools.partial(forward, value_only=False)
    if training:
        reference = differentiable if lean else None
        return backend.custom_vjp(forward, backward, reference)

    def without_residuals(*args: Any, value_only: bool = lean) -> Any:
        return forward(*args, keep=False, value_only=value_only)[0], args

    return backend.custom_vjp(
        without_residuals,
        lambda args, cotangents: backward(differentiable(*args)[1], cotangents),
        functools.partial(without_residuals, value_only=False),
    )


def sequence_forward(
    cell: Cell,
    settings: Settings,
    go_backwards: bool,
    return_all_outputs: bool,
    sequences: Any,
    states: tuple[Any, ...],
    weights: dict[str, Any],
    dropout_masks: tuple[Any, Any],
    rows: tuple[Any, Any],  # the mask (T, B, 1) and what is given, or None
    *,
    lean: bool = False,
    keep: bool = False,
    value_only: bool = False,
) -> tuple[Any, Any]:
    """`((outputs, final_states, statistics), residuals)` of `run`.

    A `lean` loop keeps no statistics: to take them again launches less.
    Without `keep` the residuals are None. `value_only` is that of
    `Cell.norms`.
    """
    input_mask, recurrent_mask = dropout_masks
    projected = project(_time_major(sequences, input_mask), weights)

    def body(states: Any, row: Any) -> Any:
        projected_t, (valid, given) = row
        new_states, statistics, from_h = run_step(
            cell,
            projected_t,
            states,
            weights,
            settings,
            recurrent_mask=recurrent_mask,
            valid=valid,
            given=given,
            value_only=value_only,
        )
        if valid is not None:
            new_states = tuple(
                keras.ops.where(valid, new, old)
                for new, old in zip(new_states, states, strict=True)
            )
        h = None
        if return_all_outputs:
            h = keras.ops.cast(new_states[0], sequences.dtype)
        if lean or not (keep or cell.gives_statistics):
            statistics = {}
        kept = (states, from_h) if keep else None
        return new_states, (h, statistics, kept)

    final_states, (outputs, statistics, kept) = backend.scan(
        body, states, (projected, rows), reverse=go_backwards
    )
    if return_all_outputs:
        outputs = keras.ops.transpose(_visits(outputs, go_backwards), (1, 0, 2))
    visited = {}
    if cell.gives_statistics:
        visited = _visits(statistics, go_backwards)
    residuals = None
    if keep:
        args = (sequences, states, weights, dropout_masks, rows)
        residuals = (args, projected, statistics, kept)
    return (outputs, final_states, visited), residuals


def sequence_vjp(
    cell: Cell,
    settings: Settings,
    go_backwards: bool,
    lean: bool,
    residuals: Any,
    cotangents: Any,
) -> tuple[Any, ...]:
    """Gradients of the arguments of `sequence_forward`'s op.

    A `lean` loop computes what the next step needs and keeps the gradients
    of the new states. From them come the other gradients after it, of all
    steps at once: more arithmetic in fewer kernels.
    """
    args, projected, statistics, (previous, from_h) = residuals
    sequences, states, weights, (input_mask, recurrent_mask), rows = args
    d_outputs, d_states, _ = cotangents
    if d_outputs is not None:
        d_outputs = keras.ops.transpose(d_outputs, (1, 0, 2))
        d_outputs = _visits(d_outputs, go_backwards)
    dtype = sequences.dtype
    transposed = keras.ops.transpose(weights["recurrent_kernel"])
    widen = settings.widen
    vectors = [name for name, w in weights.items() if len(w.shape) == 1]
    norms = cell.norms(weights, settings.epsilon, None, rows[1], False)
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

    def step_vjp(step: Any, d_states: Any, valid: Any, given: Any) -> Any:
        projected, from_h, states, factors = step
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
        # In one array, for the loop to add to at once.
        joined = None
        if vectors:
            joined = keras.ops.concatenate([d_vectors[n] for n in vectors])
        return d_products, d_direct, joined

    def body(carry: Any, row: Any) -> Any:
        d_states, d_vectors = carry
        step, (valid, given), d_h = row
        if d_h is not None:
            d_states = (d_states[0] + widen(d_h), *d_states[1:])
        d_skipped: tuple[Any, ...] = (None,) * len(d_states)
        if valid is not None:
            d_skipped = tuple(keras.ops.where(valid, 0.0, d) for d in d_states)
            d_states = tuple(keras.ops.where(valid, d, 0.0) for d in d_states)
        d_products, d_direct, more = step_vjp(step, d_states, valid, given)
        d_shown = widen(backend.matmul(d_products[1], transposed))
        if recurrent_mask is not None:
            d_shown = d_shown * widen(recurrent_mask)
        through = (d_shown, *[None] * (len(states) - 1))
        d_previous = tuple(map(_sum, through, d_direct, d_skipped))
        if lean:
            return (d_previous, None), d_states
        if vectors:
            d_vectors = d_vectors + more
        return (d_previous, d_vectors), d_products

    zeros = None
    if vectors and not lean:
        joined = keras.ops.concatenate([widen(weights[n]) for n in vectors])
        zeros = keras.ops.zeros_like(joined)
    steps = (projected, from_h, previous, factors)
    (d_first, d_vectors), rows_of_loop = backend.scan(
        body,
        (tuple(widen(d) for d in d_states), zeros),
        (steps, rows, d_outputs),
        reverse=not go_backwards,
    )
    flat = keras.tree.map_structure(_flat, rows_of_loop)
    if lean:
        steps = keras.tree.map_structure(_flat, steps)
        flat, _, d_vectors = step_vjp(steps, flat, None, None)
    d_from_x, d_from_h = flat

    sizes = [weights[name].shape[0] for name in vectors]
    places = itertools.pairwise(itertools.accumulate(sizes, initial=0))
    d_weights = {
        name: d_vectors[start:end]
        for name, (start, end) in zip(vectors, places, strict=True)
    }
    inputs = _time_major(sequences, input_mask)
    h = shown(previous[0], dtype, recurrent_mask)
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
    d_first = tuple(
        keras.ops.cast(d, state.dtype)
        for d, state in zip(d_first, states, strict=True)
    )
    return (
        keras.ops.transpose(d_inputs, (1, 0, 2)),
        d_first,
        d_weights,
        None,
        None,
    )


def _time_major(sequences: Any, input_mask: Any) -> Any:
    """The inputs that are multiplied (T, B, D)."""
    inputs = keras.ops.transpose(sequences, (1, 0, 2))
    return inputs if input_mask is None else inputs * input_mask


def _visits(rows: Any, go_backwards: bool) -> Any:
    """Rows (T, ...) of a structure, in time or in the order of the visits."""
    if not go_backwards:
        return rows
    return keras.tree.map_structure(
        lambda x: None if x is None else keras.ops.flip(x, axis=0), rows
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
