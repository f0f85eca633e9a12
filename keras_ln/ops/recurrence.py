"""A cell's step and its gradient, turned into one op for a whole sequence.

Outside the loop over time stand the input product, for all steps at once,
and the products that give the gradients of the kernels and of the inputs,
one each. Letters: B batch, T time, D input features, U units, n gates.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_ln import backend
from keras_ln.ops.activations import Activation
from keras_ln.ops.normalize import LayerNorms, widen


class Settings(NamedTuple):
    """What a step needs beside tensors."""

    epsilon: float
    activation: Activation
    # None in cells without gates.
    recurrent_activation: Any = None


class Cell(NamedTuple):
    """The maths of a recurrent cell, without its two matrix products."""

    # `step(from_x, from_h, states, settings, norms)`, where from_x is x W and
    # from_h is h R (B, nU): the new states (B, U), h first, and the
    # statistics by site.
    step: Callable[..., tuple[tuple[Any, ...], Any]]
    # `step_vjp(from_x, from_h, states, settings, norms, statistics,
    # cotangents)`: gradients of from_x and from_h, of the states apart from
    # what flows through from_h (None for none), and of the vectors by name.
    step_vjp: Callable[..., tuple[Any, Any, tuple[Any, ...], dict[str, Any]]]
    # `norms(weights, epsilon, valid, given)`: the sites of one step. valid
    # (B, 1) is the step's mask or None, given what `run` was given for it.
    norms: Callable[..., Any]
    # Whether the statistics are of use after the step. Else they are not
    # kept: to take them again costs less than to store them.
    keeps_statistics: bool = False


def layer_norms(weights: Any, epsilon: float, *_: Any) -> LayerNorms:
    """Sites with the statistics of each row, which no mask concerns."""
    return LayerNorms(weights, epsilon)


def project(inputs: Any, weights: dict[str, Any]) -> Any:
    """`x W` (..., nU) of inputs (..., D), for all steps at once."""
    return backend.matmul(inputs, weights["kernel"])


def run_step(
    cell: Cell,
    projected: Any,
    states: tuple[Any, ...],
    weights: dict[str, Any],
    settings: Settings,
    *,
    recurrent_mask: Any = None,
    valid: Any = None,
    given: Any = None,
) -> tuple[tuple[Any, ...], Any, Any]:
    """One step of `cell`, computed in at least float32.

    Args:
        cell: its maths.
        projected: x W (B, nU).
        states: tensors (B, U), h first.
        weights: recurrent_kernel (U, nU) and the cell's vectors, by name.
        settings: see there.
        recurrent_mask: dropout mask of h (B, U), scaled, or None.
        valid: see `Cell.norms`.
        given: see `Cell.norms`.

    Returns:
        The new states, each in the dtype of the old one, the statistics of
        the step, and the product h R (B, nU).
    """
    shown = _shown(states[0], projected.dtype, recurrent_mask)
    from_h = backend.matmul(shown, weights["recurrent_kernel"])
    new_states, statistics = cell.step(
        widen(projected),
        widen(from_h),
        tuple(widen(state) for state in states),
        settings,
        cell.norms(weights, settings.epsilon, valid, given),
    )
    new_states = tuple(
        keras.ops.cast(new, old.dtype)
        for new, old in zip(new_states, states, strict=True)
    )
    return new_states, statistics, from_h


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
        statistics (T, ...) come in the order of the visits; the statistics
        have no gradient.
    """
    valid = None
    if mask is not None:
        valid = keras.ops.swapaxes(mask, 0, 1)[..., None]
    op = _operation(cell, settings, go_backwards, return_all_outputs, training)
    outputs, states, statistics = op(
        sequences,
        tuple(states),
        weights,
        (input_mask, recurrent_mask),
        (valid, _visits(given, go_backwards)),
    )
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
    training: bool,
) -> Any:
    def forward(*args: Any) -> Any:
        return sequence_forward(
            cell, settings, go_backwards, return_all_outputs, *args
        )

    def backward(residuals: Any, cotangents: Any) -> Any:
        return sequence_vjp(cell, settings, go_backwards, residuals, cotangents)

    if training:
        return backend.custom_vjp(forward, backward)
    return backend.custom_vjp(
        lambda *args: (forward(*args)[0], args),
        lambda args, cotangents: backward(forward(*args)[1], cotangents),
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
) -> tuple[Any, Any]:
    """`((outputs, final_states, statistics), residuals)` of `run`."""
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
        )
        if valid is not None:
            new_states = tuple(
                keras.ops.where(valid, new, old)
                for new, old in zip(new_states, states, strict=True)
            )
        h = None
        if return_all_outputs:
            h = keras.ops.cast(new_states[0], sequences.dtype)
        kept = statistics if cell.keeps_statistics else {}
        return new_states, (h, kept, (states, from_h))

    final_states, (outputs, statistics, kept) = backend.scan(
        body, states, (projected, rows), reverse=go_backwards
    )
    if return_all_outputs:
        outputs = keras.ops.swapaxes(_visits(outputs, go_backwards), 0, 1)
    shown = _visits(statistics, go_backwards)
    args = (sequences, states, weights, dropout_masks, rows)
    residuals = (args, projected, statistics, kept)
    return (outputs, final_states, shown), residuals


def sequence_vjp(
    cell: Cell,
    settings: Settings,
    go_backwards: bool,
    residuals: Any,
    cotangents: Any,
) -> tuple[Any, ...]:
    """Gradients of the arguments of `sequence_forward`'s op."""
    args, projected, statistics, (previous, from_h) = residuals
    sequences, states, weights, (input_mask, recurrent_mask), rows = args
    d_outputs, d_states, _ = cotangents
    if d_outputs is not None:
        d_outputs = keras.ops.swapaxes(d_outputs, 0, 1)
        d_outputs = _visits(d_outputs, go_backwards)
    dtype = sequences.dtype
    transposed = keras.ops.transpose(weights["recurrent_kernel"])
    vectors = [name for name, w in weights.items() if len(w.shape) == 1]

    def body(carry: Any, row: Any) -> Any:
        d_states, sums = carry
        projected_t, states, from_h, statistics, (valid, given), d_h = row
        if d_h is not None:
            d_states = (d_states[0] + widen(d_h), *d_states[1:])
        d_skipped: tuple[Any, ...] = (None,) * len(d_states)
        if valid is not None:
            d_skipped = tuple(keras.ops.where(valid, 0.0, d) for d in d_states)
            d_states = tuple(keras.ops.where(valid, d, 0.0) for d in d_states)
        d_from_x, d_from_h, d_direct, d_vectors = cell.step_vjp(
            widen(projected_t),
            widen(from_h),
            tuple(widen(state) for state in states),
            settings,
            cell.norms(weights, settings.epsilon, valid, given),
            statistics,
            d_states,
        )
        d_from_h = keras.ops.cast(d_from_h, dtype)
        d_shown = widen(backend.matmul(d_from_h, transposed))
        if recurrent_mask is not None:
            d_shown = d_shown * widen(recurrent_mask)
        through = (d_shown, *[None] * (len(states) - 1))
        d_states = tuple(map(_sum, through, d_direct, d_skipped))
        if vectors:
            new = [d_vectors[name] for name in vectors]
            sums = sums + keras.ops.concatenate(new)
        return (d_states, sums), (keras.ops.cast(d_from_x, dtype), d_from_h)

    # All in one array, to be added to at once.
    sums = None
    if vectors:
        old = [widen(weights[name]) for name in vectors]
        sums = keras.ops.zeros_like(keras.ops.concatenate(old))
    (d_first, sums), (d_from_x, d_from_h) = backend.scan(
        body,
        (tuple(widen(d) for d in d_states), sums),
        (projected, previous, from_h, statistics, rows, d_outputs),
        reverse=not go_backwards,
    )

    d_weights = {}
    if vectors:
        sizes = [weights[name].shape[0] for name in vectors]
        parts = keras.ops.split(sums, list(itertools.accumulate(sizes))[:-1])
        d_weights = dict(zip(vectors, parts, strict=True))
    d_from_x, d_from_h = _flat(d_from_x), _flat(d_from_h)
    inputs = _time_major(sequences, input_mask)
    shown = _shown(previous[0], dtype, recurrent_mask)
    d_weights["kernel"] = _product(inputs, d_from_x)
    d_weights["recurrent_kernel"] = _product(shown, d_from_h)
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
    return keras.ops.swapaxes(d_inputs, 0, 1), d_first, d_weights, None, None


def _time_major(sequences: Any, input_mask: Any) -> Any:
    """The inputs that are multiplied (T, B, D)."""
    inputs = keras.ops.swapaxes(sequences, 0, 1)
    return inputs if input_mask is None else inputs * input_mask


def _shown(h: Any, dtype: str, recurrent_mask: Any) -> Any:
    """What the product sees of h (..., B, U); the carried h may be wider."""
    h = keras.ops.cast(h, dtype)
    if recurrent_mask is None:
        return h
    return h * keras.ops.cast(recurrent_mask, dtype)


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
    return keras.ops.reshape(rows, (-1, rows.shape[-1]))


def _product(left: Any, right: Any) -> Any:
    """Sum over steps and rows of outer products, (T, B, M) with (TB, N)."""
    return backend.matmul(keras.ops.transpose(_flat(left)), right)
