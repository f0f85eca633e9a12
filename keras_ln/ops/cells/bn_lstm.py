"""The LSTM with batch statistics of each time step.

Source: Cooijmans et al., "Recurrent Batch Normalization" (2016).
Letters: B batch, T time, D input features, U units, S the number of steps with
moving statistics of their own. Gates are in the order i, f, c, o. `weights`
maps names to tensors; a site is normalised if its gamma is among them.
Statistics map every site to a pair (mean, variance), or to None if the site is
not normalised.
"""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_ln.engine import arguments
from keras_ln.engine.spec import Cell, Vector
from keras_ln.ops.cells.lstm import OPTIONS, SITES, lstm_step, lstm_step_vjp
from keras_ln.ops.norms.batch_normalization import (
    statistics_of_steps,
    update_step_statistics,
)
from keras_ln.ops.norms.cell_norms import BatchNorms
from keras_ln.ops.public import (
    Options,
    check_sequences,
    over_time,
    sequence_op,
    tensors_of,
)

if TYPE_CHECKING:  # In typing since Python 3.11.
    from typing_extensions import Unpack

# The names of the moving mean and variance (S, 4U or U) of each site.
MOVING = {
    site: (f"{site}_moving_mean", f"{site}_moving_variance") for site in SITES
}


BN_LSTM = Cell(
    lstm_step,
    lstm_step_vjp,
    BatchNorms,
    gates=4,
    states={"h": "P", "c": "U"},
    vectors=(
        Vector("bias", 4),
        Vector("kernel_gamma", 4, "kernel"),
        Vector("recurrent_gamma", 4, "recurrent"),
        Vector("state_gamma", 1, "state"),
        Vector("state_beta", 1, "state"),
    ),
    options=OPTIONS,
    segments={"paper": (4,)},
    batch_statistics=True,
)


@sequence_op
def bn_lstm(
    sequences: Any,
    initial_states: Any,
    weights: dict[str, Any],
    *,
    learn: bool,
    activation: Any = "tanh",
    recurrent_activation: Any = "sigmoid",
    epsilon: float = 1e-5,
    cell_zoneout: Any = 0.0,
    first_step: Any = 0,
    **options: Unpack[Options],
) -> tuple[Any, Any, tuple[Any, Any], dict[str, Any]]:
    """Runs a batch-normalised LSTM over sequences, as one compiled op.

    With `BN_t(z; g, b) = g * (z - mean_t) / sqrt(var_t + epsilon) + b`, in
    which mean_t and var_t are the statistics of the batch at step t, and gamma
    and beta are shared over time:

        [i f c~ o] = BN_t(h R; recurrent_gamma) + BN_t(x W; kernel_gamma)
                   + bias
        c' = sigmoid(f) * c + sigmoid(i) * tanh(c~)
        h' = sigmoid(o) * tanh(BN_t(c'; state_gamma, state_beta))

    At a masked step a row does not count in the statistics. The gradients of
    sequences, states and weights are hand-written.

    Args:
        sequences: floating-point tensor (B, T, D).
        initial_states: h and c, tensors (B, U); None for zeros.
        weights: kernel (D, 4U), recurrent_kernel (U, 4U), and any of bias,
            kernel_gamma, recurrent_gamma (4U), state_gamma and state_beta
            (U). Columns are in the order i, f, c, o. The kernels are cast to
            the dtype of the sequences. A site ("kernel", "recurrent" or
            "state") is normalised if its gamma is given; without `learn` each
            such site needs its `{site}_moving_mean` and
            `{site}_moving_variance` (S, 4U or U).
        learn: normalise by the statistics of the batch, instead of the moving
            statistics. Steps beyond S use the moving statistics of step S.
        first_step: the number of steps before this call, if the sequences
            continue from earlier states: the first processed step uses this
            row of the moving statistics. An int >= 0, or an integer tensor ()
            in which numbers below 0 count as 0. With `learn` it changes
            nothing.
        {arguments}

    Returns:
        `(last_output, outputs, final_states, statistics)`: h after the last
        step (B, U); h after each step (B, T, U), or without
        `return_all_outputs` after the last step (B, 1, U); both in the dtype
        of the sequences; h and c (B, U) in the dtypes of the initial states;
        and by site the pair of the means and variances (T, 4U or U) used, in
        the order of processing and without a gradient, or None if the site is
        not normalised. Everything between is computed in at least float32.

    Raises:
        ValueError: for a wrong dtype, shape, weight name or epsilon, named in
            the message.

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
    sequences, weights = tensors_of(sequences, weights)
    if not learn:
        _check_statistics(weights)
    first_step = check_first_step(first_step)
    weights, moving = split_moving(weights)
    constants = {}
    if not learn and moving:
        check_sequences(sequences)
        steps = keras.ops.shape(sequences)[1]
        constants = statistics_of(moving, steps, first_step)
    *results, by_name = over_time(
        BN_LSTM,
        sequences,
        initial_states,
        weights,
        constants=constants,
        activation=activation,
        recurrent_activation=recurrent_activation,
        epsilon=epsilon,
        owner="bn_lstm",
        cell_zoneout=cell_zoneout,
        **options,
    )
    return *results, statistics_in(by_name)


def split_moving(
    weights: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """The weights of a step, and mean and variance of the normalised sites."""
    names = {name for of_site in MOVING.values() for name in of_site}
    moving = {
        site: tuple(weights[name] for name in of_site)
        for site, of_site in MOVING.items()
        if f"{site}_gamma" in weights and {*of_site} <= {*weights}
    }
    return {n: w for n, w in weights.items() if n not in names}, moving


def statistics_at(moving: dict[str, Any], counter: Any) -> dict[str, Any]:
    """Moving statistics (B, 4U or U) for rows that have done `counter` steps.

    The counter holds whole numbers (B, 1) of any dtype. Steps beyond S use the
    last row of the statistics (S, 4U or U).
    """

    def at(statistic: Any) -> Any:
        row = keras.ops.cast(counter[:, 0], "int32")
        row = keras.ops.minimum(row, statistic.shape[0] - 1)
        return keras.ops.take(statistic, row, axis=0)

    return keras.tree.map_structure(at, moving)


def statistics_of(
    moving: dict[str, Any], steps: Any, first_step: Any
) -> dict[str, Any]:
    """The moving statistics (T, 4U or U) of steps, by weight name.

    The first step is `first_step`, an int or a tensor; steps beyond S use the
    last row of the statistics (S, 4U or U).
    """
    return {
        name: statistics_of_steps(statistic, steps, first_step)
        for site, of_site in moving.items()
        for name, statistic in zip(MOVING[site], of_site, strict=True)
    }


def statistics_in(results: dict[str, Any]) -> dict[str, Any]:
    """Means and variances (T, 4U or U) by site, from the results of a run.

    None for a site that is not normalised.
    """
    return {
        site: (results[f"{site}_mean"], results[f"{site}_variance"])
        if f"{site}_mean" in results
        else None
        for site in SITES
    }


def moved_statistics(
    moving: dict[str, Any],
    statistics: dict[str, Any],
    momentum: float,
    mask: Any,
    go_backwards: bool,
    first_step: Any,
) -> dict[str, Any]:
    """The moving statistics after a batch that began with `first_step`.

    They are returned by weight name. Steps beyond S, steps masked in every row
    (mask (B, T)), and entries that are not finite change nothing.
    """
    valid = None
    if mask is not None:
        valid = keras.ops.any(mask, axis=0)
        valid = keras.ops.flip(valid) if go_backwards else valid
    moved: dict[str, Any] = {}
    for site, old in moving.items():
        mean, variance = statistics[site]
        new = update_step_statistics(
            old[0], old[1], mean, variance, momentum, valid, first_step
        )
        moved |= zip(MOVING[site], new, strict=True)
    return moved


def check_first_step(first_step: Any) -> Any:
    """Returns `first_step` as an int or an int32 tensor ().

    A tensor's value is not checked: the check might have to wait for it.

    Raises:
        ValueError: unless it is a whole number >= 0, or an integer tensor ().
    """
    value = first_step
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        if int(value) >= 0:
            return int(value)
    elif (
        hasattr(value, "dtype")
        and tuple(value.shape) == ()
        and "int" in keras.backend.standardize_dtype(value.dtype)
    ):
        return keras.ops.cast(value, "int32")
    raise arguments.wrong(
        "first_step",
        "a whole number >= 0 or an integer tensor of shape (), the number of "
        "steps before this call",
        first_step,
    )


def _check_statistics(weights: dict[str, Any]) -> None:
    for site, names in MOVING.items():
        gamma = weights.get(f"{site}_gamma")
        # A gamma of another rank is refused with the other weights.
        if gamma is None or len(gamma.shape) != 1:
            continue
        for name in names:
            if name not in weights:
                raise ValueError(
                    f"Argument `weights` must hold {name} with learn=False. "
                    f"Received: {', '.join(weights)}."
                )
            arguments.check_weight(name, weights[name], ("steps", *gamma.shape))
