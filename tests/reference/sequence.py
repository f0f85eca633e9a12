"""What every recurrence shares: time, masks, direction, dropout."""

import numpy as np


def sigmoid(z):
    """1 / (1 + exp(-z)), for complex z too, without an overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * z)


def dropped(z, mask):
    """Z times a dropout mask; None means no dropout."""
    return z if mask is None else z * mask


def zoned(new, old, stays, t):
    """What a step at time t makes of an old state that stays, in part."""
    if np.ndim(stays):
        return np.where(stays[:, t], old, new)
    return stays * old + (1.0 - stays) * new


def run(
    step,
    x,
    states,
    *,
    mask=None,
    go_backwards=False,
    zero_output_for_mask=False,
    zoneout=0.0,
    cell_zoneout=0.0,
    reset=None,
    reset_state=None,
):
    """Apply `step` to every time step of x (B, T, D).

    `step(x_t, states, k, valid)` returns the new states; `k` counts steps in
    processing order, `valid` (B,) marks the rows that the mask keeps. A
    masked row keeps its states and puts out the h it carries, or zero.

    Zoneout: of the h (and the c) that a step makes, the share `zoneout` is what
    it was before; or `zoneout` (B, T, U) says where it is.

    Where `reset` (B, T) marks the first step, in time, of a new sequence, the
    states become `reset_state`, or zeros, before the sequence's first visit.

    Returns y (B, T, U), in processing order, and the final states.
    """
    batch, steps, _ = x.shape
    mask = np.ones((batch, steps), bool) if mask is None else mask
    order = range(steps - 1, -1, -1) if go_backwards else range(steps)
    outputs = []
    for k, t in enumerate(order):
        begins = t + 1 if go_backwards else t
        if reset is not None and begins < steps:
            states = [
                np.where(reset[:, begins, None], new, old)
                for new, old in zip(reset_state, states, strict=True)
            ]
        valid = mask[:, t]
        keep = valid[:, None]
        proposed = [
            zoned(new, old, stays, t)
            for new, old, stays in zip(
                step(x[:, t], states, k, valid),
                states,
                (zoneout, cell_zoneout),
                strict=False,
            )
        ]
        states = [
            np.where(keep, new, old)
            for new, old in zip(proposed, states, strict=True)
        ]
        hidden = states[0]
        outputs.append(hidden * keep if zero_output_for_mask else hidden)
    return np.stack(outputs, axis=1), list(states)
