"""The LSTM with batch statistics of each time step.

Source: Cooijmans et al., "Recurrent Batch Normalization" (2016).
Letters: B batch, T time, D input features, U units, S the steps that have
moving statistics of their own. Gates stand in the order i, f, c, o. `weights`
maps names to tensors; a site is normalised where its gamma is there.
Statistics map sites to a pair (mean, variance).
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.batch_normalization import (
    batch_statistics,
    normalize,
    statistics_of_steps,
    update_step_statistics,
)
from keras_ln.ops.cell_loop import recording_loop
from keras_ln.ops.normalize import affine, widen

SITES = ("kernel", "recurrent", "state")


def sequence(
    sequences: Any,
    initial_states: tuple[Any, Any],
    weights: dict[str, Any],
    *,
    learn: bool,
    epsilon: float,
    mask: Any = None,
    go_backwards: bool = False,
    recurrent_mask: Any = None,
    activation: Callable[[Any], Any] = backend.tanh,
    recurrent_activation: Callable[[Any], Any] = backend.sigmoid,
    **options: Any,
) -> tuple[Any, Any, tuple[Any, ...], dict[str, Any]]:
    """The cell over time.

    Args:
        sequences: inputs (B, T, D).
        initial_states: h and c, each (B, U).
        weights: those of `project` and `step` and, for each site, its moving
            statistics (S, 4U or U).
        learn: whether to normalise by the statistics of the batch, instead of
            the moving ones. Steps beyond S use the moving ones of the last.
        epsilon: number > 0, inside the square root.
        mask: bool tensor (B, T) or None. A step of a row that it leaves out
            does not count in the statistics.
        go_backwards: visit the last step first. Steps count as visited.
        recurrent_mask: dropout mask of h (B, U), scaled, or None.
        activation: see `step`.
        recurrent_activation: see `step`.
        **options: those of `cell_loop`.

    Returns:
        `(last_output, outputs, final_states, statistics)`: what `cell_loop`
        returns, and the statistics (T, 4U or U) that were used, in the order
        of the visits.
    """
    if go_backwards:
        sequences = keras.ops.flip(sequences, axis=1)
        mask = None if mask is None else keras.ops.flip(mask, axis=1)
    given = None if learn else _moving(weights, keras.ops.shape(sequences)[1])
    projected, kernel_statistics = project(
        sequences,
        weights,
        epsilon,
        given,
        None if mask is None else mask[..., None],
    )

    def body(inputs_t: Any, states: Any, valid: Any) -> Any:
        projected_t, statistics_t = inputs_t
        return step(
            projected_t,
            states,
            weights,
            activation=activation,
            recurrent_activation=recurrent_activation,
            epsilon=epsilon,
            recurrent_mask=recurrent_mask,
            statistics=statistics_t,
            valid=valid,
        )

    if given is not None:
        # Rows (1, T, F), which the loop takes apart like the inputs.
        given = keras.tree.map_structure(lambda rows: rows[None], given)
    last_output, outputs, states, statistics = recording_loop(
        body, (projected, given), initial_states, mask=mask, **options
    )
    return last_output, outputs, states, kernel_statistics | statistics


def project(
    x: Any,
    weights: dict[str, Any],
    epsilon: float,
    statistics: dict[str, Any] | None = None,
    mask: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """`BN(x W) + bias`: the inputs' share of the gates.

    Args:
        x: inputs (B, ..., D). Statistics are taken over B alone.
        weights: kernel (D, 4U) and, where there are, kernel_gamma and bias,
            each (4U).
        epsilon: number > 0, inside the square root.
        statistics: those to normalise with, which broadcast against
            (B, ..., 4U), or None to take those of `x`.
        mask: bool tensor (B, ..., 1), False where a row does not count; or
            None.

    Returns:
        A tensor (B, ..., 4U) in the dtype of `x`, and the statistics of the
        site "kernel" if it is normalised.
    """
    z, used = _normalize(
        "kernel",
        widen(backend.matmul(x, weights["kernel"])),
        weights,
        epsilon,
        statistics,
        mask,
    )
    return keras.ops.cast(affine(z, None, weights.get("bias")), x.dtype), used


def step(
    projected: Any,
    states: tuple[Any, Any],
    weights: dict[str, Any],
    *,
    activation: Callable[[Any], Any] = backend.tanh,
    recurrent_activation: Callable[[Any], Any] = backend.sigmoid,
    epsilon: float,
    recurrent_mask: Any = None,
    statistics: dict[str, Any] | None = None,
    valid: Any = None,
) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """One time step.

    Args:
        projected: what `project` makes of the step's inputs (B, 4U).
        states: h and c, each (B, U).
        weights: recurrent_kernel (U, 4U) and, where there are,
            recurrent_gamma (4U), state_gamma and state_beta, each (U).
        activation: of the candidate and of the cell state that is shown.
        recurrent_activation: of the gates i, f and o.
        epsilon: number > 0, inside the square root.
        recurrent_mask: dropout mask of h (B, U), scaled, or None.
        statistics: those to normalise with, which broadcast against
            (B, 4U or U), or None to take those of the batch.
        valid: bool tensor (B, 1), False where a row does not count; or None.

    Returns:
        The new h and c (B, U), each in the dtype of the old one, and the
        statistics of the sites "recurrent" and "state" if those are
        normalised. All between is computed in at least float32.
    """
    h, c = states
    shown = h if recurrent_mask is None else h * recurrent_mask
    from_h, recurrent = _normalize(
        "recurrent",
        widen(backend.matmul(shown, weights["recurrent_kernel"])),
        weights,
        epsilon,
        statistics,
        valid,
    )
    z = widen(projected) + from_h
    i, f, candidate, o = keras.ops.split(z, 4, axis=-1)
    new_c = recurrent_activation(f) * widen(c)
    new_c = new_c + recurrent_activation(i) * activation(candidate)
    # The carried c is not normalised, only what h sees of it.
    normalized, state = _normalize(
        "state", new_c, weights, epsilon, statistics, valid
    )
    new_h = recurrent_activation(o) * activation(normalized)
    new_states = keras.ops.cast(new_h, h.dtype), keras.ops.cast(new_c, c.dtype)
    return new_states, recurrent | state


def statistics_at(weights: dict[str, Any], counter: Any) -> dict[str, Any]:
    """Moving statistics (B, 4U or U) for rows that have done `counter` steps.

    Args:
        weights: for each site its moving statistics (S, 4U or U).
        counter: whole numbers (B, 1) of any dtype. The last row serves beyond
            S.
    """

    def at(moving: Any) -> Any:
        row = keras.ops.cast(counter[:, 0], "int32")
        row = keras.ops.minimum(row, moving.shape[0] - 1)
        return keras.ops.take(moving, row, axis=0)

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


def _normalize(
    site: str,
    z: Any,
    weights: dict[str, Any],
    epsilon: float,
    statistics: dict[str, Any] | None,
    valid: Any,
) -> tuple[Any, dict[str, Any]]:
    """The site's `z`, normalised if it has a gamma, and its statistics."""
    gamma = weights.get(f"{site}_gamma")
    if gamma is None:
        return z, {}
    if statistics is None:
        used = batch_statistics(z, valid, axes=(0,))
    else:
        used = statistics[site]
    beta = weights.get(f"{site}_beta")
    return normalize(z, *used, gamma, beta, epsilon), {site: used}


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


def _moving(weights: dict[str, Any], steps: Any) -> dict[str, Any]:
    return {
        site: (
            statistics_of_steps(mean, steps),
            statistics_of_steps(variance, steps),
        )
        for site, mean, variance in _sites(weights)
    }
