"""The LSTM with batch statistics of each time step.

Source: Cooijmans et al., "Recurrent Batch Normalization" (2016).
Letters: B batch, T time, D input features, U units, S the steps that have
moving statistics of their own. Gates stand in the order i, f, c, o. `weights`
maps names to tensors; a site is normalised where its gamma is there.
Statistics map sites to a pair (mean, variance), None where a site is not
normalised.
"""

from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops import arguments, recurrence
from keras_ln.ops.batch_normalization import (
    statistics_of_steps,
    update_step_statistics,
)
from keras_ln.ops.cell import Cell, Settings, run_step
from keras_ln.ops.cell_loop import recording_loop
from keras_ln.ops.lstm import SITES, lstm_step, lstm_step_vjp
from keras_ln.ops.normalize import BatchNorms
from keras_ln.ops.sequence_arguments import check_sequence, weight_tensors
from keras_ln.ops.symbolic import takes_symbolic_tensors

VECTORS = {
    "bias": 4,
    "kernel_gamma": 4,
    "recurrent_gamma": 4,
    "state_gamma": 1,
    "state_beta": 1,
}
_MOVING = {
    f"{site}_moving_{statistic}"
    for site in SITES
    for statistic in ("mean", "variance")
}


def _norms(
    weights: dict[str, Any],
    epsilon: float,
    valid: Any,
    given: Any,
    value_only: bool,
) -> BatchNorms:
    return BatchNorms(weights, epsilon, valid, given)


BN_LSTM = Cell(lstm_step, lstm_step_vjp, _norms, gives_statistics=True)


@takes_symbolic_tensors
def bn_lstm(
    sequences: Any,
    initial_states: Any,
    weights: dict[str, Any],
    *,
    learn: bool,
    activation: Any = "tanh",
    recurrent_activation: Any = "sigmoid",
    epsilon: float = 1e-5,
    mask: Any = None,
    input_mask: Any = None,
    recurrent_mask: Any = None,
    go_backwards: bool = False,
    return_all_outputs: bool = True,
    training: bool = True,
) -> tuple[Any, Any, tuple[Any, Any], dict[str, Any]]:
    """Runs a batch-normalised LSTM over sequences, as one compiled op.

    With `BN_t(z; g, b) = g * (z - mean_t) / sqrt(var_t + epsilon) + b`, the
    statistics of the batch at step t, gamma and beta shared over time:

        [i f c~ o] = BN_t(h R; recurrent_gamma) + BN_t(x W; kernel_gamma)
                   + bias
        c' = sigmoid(f) * c + sigmoid(i) * tanh(c~)
        h' = sigmoid(o) * tanh(BN_t(c'; state_gamma, state_beta))

    A column of the batch without variance is not scaled: where its variance is
    zero up to rounding, `sqrt(var_t) <= 16 u |mean_t|` with u the unit roundoff
    of the dtype that is computed in, `1 / sqrt(var_t + epsilon)` is 1, a
    constant. Moving statistics scale as ever.

    At a step that the mask leaves out, a row does not count in the
    statistics, its states stay and its output is the h that is carried. The
    gradients of sequences, states and weights are hand-written.

    Args:
        sequences: floating-point tensor (B, T, D).
        initial_states: h and c, tensors (B, U); None for zeros.
        weights: kernel (D, 4U), recurrent_kernel (U, 4U), and any of bias,
            kernel_gamma, recurrent_gamma (4U), state_gamma and state_beta
            (U). Columns stand in the order i, f, c, o. The kernels are cast
            to the dtype of the sequences. A site is normalised where its
            gamma is there; without `learn` each such site has its
            `{site}_moving_mean` and `{site}_moving_variance` (S, 4U or U),
            the sites being "kernel", "recurrent" and "state".
        learn: whether to normalise by the statistics of the batch, instead of
            the moving ones. Steps beyond S use the moving ones of the last.
        activation: of the candidate c~ and of the c that h sees: one of
            "linear", "relu", "sigmoid", "tanh".
        recurrent_activation: of the gates i, f and o, likewise.
        epsilon: finite number > 0, inside the square root.
        mask: bool tensor (B, T), False where a row's step is left out.
        input_mask: dropout mask of the inputs (B, D), scaled; a constant.
        recurrent_mask: dropout mask of h (B, U), scaled; a constant.
        go_backwards: visit the last step first; outputs come in the order of
            the visits. Steps count as visited.
        return_all_outputs: whether to return the outputs of every step.
        training: whether a gradient is likely to be asked for. What it needs
            is then kept; else a gradient runs the sequence again.

    Returns:
        `(last_output, outputs, final_states, statistics)`: h after the last
        step (B, U), h after each step (B, T, U), or without
        `return_all_outputs` the last one (B, 1, U), both in the dtype of the
        sequences; h and c (B, U) in the dtypes of the initial states; and by
        site the means and variances (T, 4U or U) that were used, in the order
        of the visits and without a gradient, or None where the site is not
        normalised. All between is computed in at least float32.

    Raises:
        ValueError: for a wrong dtype, shape, weight name, activation or
            epsilon, named in the message.

    Source: Cooijmans et al., "Recurrent Batch Normalization" (2016).

    >>> import keras
    >>> ones = keras.ops.ones
    >>> weights = {
    ...     "kernel": ones((3, 16)),
    ...     "recurrent_kernel": ones((4, 16)),
    ...     "state_gamma": ones(4),
    ... }
    >>> _, outputs, _, statistics = bn_lstm(
    ...     ones((2, 7, 3)), None, weights, learn=True
    ... )
    >>> tuple(outputs.shape), tuple(statistics["state"][0].shape)
    ((2, 7, 4), (7, 4))
    """
    sequences = arguments.dense_tensor("sequences", sequences)
    weights = weight_tensors(
        weights, arguments.statistics_dtype(sequences.dtype)
    )
    checked = check_sequence(
        sequences,
        initial_states,
        {n: w for n, w in weights.items() if n not in _MOVING},
        vectors=VECTORS,
        gates=4,
        states=2,
        epsilon=epsilon,
        activation=activation,
        recurrent_activation=recurrent_activation,
        also=tuple(w for n, w in weights.items() if n in _MOVING),
    )
    given = None
    if not learn:
        _check_statistics(weights)
        given = _moving(weights, keras.ops.shape(checked[0])[1], checked[-1])
    *results, statistics = recurrence.run(
        BN_LSTM,
        *checked,
        mask=mask,
        input_mask=input_mask,
        recurrent_mask=recurrent_mask,
        given=given,
        go_backwards=go_backwards,
        return_all_outputs=return_all_outputs,
        training=training,
    )
    last_output, outputs, states = results
    return last_output, outputs, states, statistics


def bn_lstm_loop(
    sequences: Any,
    initial_states: tuple[Any, Any],
    weights: dict[str, Any],
    settings: Settings,
    *,
    learn: bool,
    mask: Any = None,
    go_backwards: bool = False,
    recurrent_mask: Any = None,
    **options: Any,
) -> tuple[Any, Any, tuple[Any, ...], dict[str, Any]]:
    """`bn_lstm` by the backend's scan and plain autodiff.

    Args:
        sequences: inputs (B, T, D).
        initial_states: h and c, each (B, U).
        weights: as in `bn_lstm`.
        settings: see there.
        learn: as in `bn_lstm`, like all that follow.
        mask: bool tensor (B, T) or None.
        go_backwards: visit the last step first.
        recurrent_mask: dropout mask of h (B, U), scaled, or None.
        **options: those of `cell_loop`.

    Returns:
        As `bn_lstm`.
    """
    given = None
    if not learn:
        given = _moving(weights, keras.ops.shape(sequences)[1], settings)
        # Rows (1, T, F), which the loop takes apart like the inputs.
        given = keras.tree.map_structure(
            lambda rows: (
                keras.ops.flip(rows, axis=0)[None]
                if go_backwards
                else rows[None]
            ),
            given,
        )

    def body(inputs_t: Any, states: Any, valid: Any) -> Any:
        projected, given_t = inputs_t
        return run_step(
            BN_LSTM,
            projected,
            states,
            weights,
            settings,
            recurrent_mask=recurrent_mask,
            valid=valid,
            given=given_t,
        )[:2]

    projected = backend.matmul(sequences, weights["kernel"])
    return recording_loop(
        body,
        (projected, given),
        initial_states,
        mask=mask,
        go_backwards=go_backwards,
        **options,
    )


def statistics_at(
    weights: dict[str, Any], counter: Any, settings: Settings
) -> dict[str, Any]:
    """Moving statistics (B, 4U or U) for rows that have done `counter` steps.

    Args:
        weights: for each site its moving statistics (S, 4U or U).
        counter: whole numbers (B, 1) of any dtype. The last row serves beyond
            S.
        settings: those of the step.
    """

    def at(moving: Any) -> Any:
        row = keras.ops.cast(counter[:, 0], "int32")
        row = keras.ops.minimum(row, moving.shape[0] - 1)
        return settings.widen(keras.ops.take(moving, row, axis=0))

    return {
        site: (at(mean), at(variance))
        for site, mean, variance in _sites(weights)
    }


def moved_statistics(
    weights: dict[str, Any],
    statistics: dict[str, Any],
    momentum: float,
    mask: Any = None,
    go_backwards: bool = False,
) -> dict[str, Any]:
    """The moving statistics after a batch, by weight name.

    Steps beyond S, steps that the mask (B, T) leaves out in every row, and
    entries that are not finite change nothing.
    """
    valid = None
    if mask is not None:
        valid = keras.ops.any(mask, axis=0)
        valid = keras.ops.flip(valid) if go_backwards else valid
    moved = {}
    for site, *moving in _sites(weights):
        mean, variance = update_step_statistics(
            moving[0],
            moving[1],
            statistics[site][0],
            statistics[site][1],
            momentum,
            valid,
        )
        moved[f"{site}_moving_mean"] = mean
        moved[f"{site}_moving_variance"] = variance
    return moved


def _sites(weights: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Each normalised site with its moving mean and variance."""
    return [
        (
            site,
            weights[f"{site}_moving_mean"],
            weights[f"{site}_moving_variance"],
        )
        for site in SITES
        if f"{site}_gamma" in weights
    ]


def _check_statistics(weights: dict[str, Any]) -> None:
    for site in SITES:
        if f"{site}_gamma" not in weights:
            continue
        (size,) = weights[f"{site}_gamma"].shape
        for statistic in ("mean", "variance"):
            name = f"{site}_moving_{statistic}"
            if name not in weights:
                raise ValueError(
                    f"Argument `weights` must hold {name} where learn is "
                    f"False. Received: {', '.join(weights)}."
                )
            arguments.check_weight(name, weights[name], ("steps", size))


def _moving(
    weights: dict[str, Any], steps: Any, settings: Settings
) -> dict[str, Any]:
    def rows(moving: Any) -> Any:
        return settings.widen(statistics_of_steps(moving, steps))

    return {
        site: (rows(mean), rows(variance))
        for site, mean, variance in _sites(weights)
    }
