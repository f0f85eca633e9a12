"""What every recurrence shares: time, masks, direction, dropout."""

import numpy as np


def sigmoid(z):
    """1 / (1 + exp(-z)), for complex z too, without an overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * z)


def dropped(z, mask):
    """Z times a dropout mask; None means no dropout."""
    return z if mask is None else z * mask


def run(
    step,
    x,
    states,
    *,
    mask=None,
    go_backwards=False,
    zero_output_for_mask=False,
):
    """Apply `step` to every time step of x (B, T, D).

    `step(x_t, states, k, valid)` returns the new states; `k` counts steps in
    processing order, `valid` (B,) marks the rows that the mask keeps. A
    masked row keeps its states and puts out the h it carries, or zero.

    Returns y (B, T, U), in processing order, and the final states.
    """
    batch, steps, _ = x.shape
    mask = np.ones((batch, steps), bool) if mask is None else mask
    order = range(steps - 1, -1, -1) if go_backwards else range(steps)
    outputs = []
    for k, t in enumerate(order):
        valid = mask[:, t]
        keep = valid[:, None]
        proposed = step(x[:, t], states, k, valid)
        states = [
            np.where(keep, new, old)
            for new, old in zip(proposed, states, strict=True)
        ]
        hidden = states[0]
        outputs.append(hidden * keep if zero_output_for_mask else hidden)
    return np.stack(outputs, axis=1), list(states)
