"""The cells in NumPy, in float64: written from the equations, and slowly.

Nothing here takes an absolute value or compares but by real parts: functions
stay analytic, so that the complex step gives derivatives to the last digit.
"""

import numpy as np

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}


def sigmoid(z):
    return 0.5 + 0.5 * np.tanh(0.5 * z)


def normalized(z, gamma, beta, epsilon, roundoff):
    """gamma * (z - mean) * scale + beta over the rows of z."""
    if gamma is None:
        return z
    mean = z.mean(axis=1, keepdims=True)
    centred = z - mean
    variance = (centred**2).mean(axis=1, keepdims=True)
    # A complex step away from zero the real part is a rounding below it.
    deviation = np.sqrt(np.maximum(variance.real, 0.0))
    constant = deviation <= 16 * roundoff * np.abs(mean.real)
    # The square root of a constant: no derivative comes from the other branch.
    safe = np.where(constant, 1.0 - epsilon, variance)
    y = gamma * centred / np.sqrt(safe + epsilon)
    return y if beta is None else y + beta


def plus(z, *vectors):
    for vector in vectors:
        z = z if vector is None else z + vector
    return z


def lstm_step(from_x, from_h, states, w, norm, carry_normalized_state):
    z = norm(from_h, "recurrent") + norm(from_x, "kernel")
    z = sum_site(z, w, norm, 4)
    i, f, g, o = np.split(plus(z, w.get("bias")), 4, axis=1)
    c = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
    shown = norm(c, "state")
    h = sigmoid(o) * np.tanh(shown)
    return h, shown if carry_normalized_state else c


def sum_site(z, w, norm, gates):
    """N(z + sum_bias), of all gates together or of each."""
    z, width = plus(z, w.get("sum_bias")), z.shape[1] // gates
    parts = [slice(None)]
    if w.get("sum_by_gate"):
        parts = [slice(k * width, (k + 1) * width) for k in range(gates)]
    return np.concatenate([norm(z[:, p], "sum", p) for p in parts], axis=1)


def gru_step(from_x, from_h, states, w, norm, _):
    units = states[0].shape[1]
    if "sum_gamma" in w:
        a = plus(sum_site(from_x + from_h, w, norm, 3), w.get("bias"))
        z, r, a = np.split(a, 3, axis=1)
        z = sigmoid(z)
        return ((1.0 - z) * states[0] + z * np.tanh(sigmoid(r) * a),)
    gates, candidate = slice(0, 2 * units), slice(2 * units, None)

    def site(z, name, bias):
        parts = [norm(z[:, part], name, part) for part in (gates, candidate)]
        return plus(np.concatenate(parts, axis=1), bias)

    from_x = site(from_x, "kernel", w.get("bias"))
    from_h = site(from_h, "recurrent", w.get("recurrent_bias"))
    z, r = np.split(sigmoid(from_x[:, gates] + from_h[:, gates]), 2, axis=1)
    g = np.tanh(from_x[:, candidate] + r * from_h[:, candidate])
    return ((1.0 - z) * states[0] + z * g,)


def simple_rnn_step(from_x, from_h, states, w, norm, _):
    return (np.tanh(norm(plus(from_x + from_h, w.get("bias")), "kernel")),)


STEPS = {"lstm": lstm_step, "gru": gru_step, "simple_rnn": simple_rnn_step}


def run(
    cell,
    x,
    states,
    weights,
    *,
    epsilon=1e-5,
    mask=None,
    input_mask=1.0,
    recurrent_mask=1.0,
    go_backwards=False,
    carry_normalized_state=False,
    sum_by_gate=False,
    zoneout=0.0,
    cell_zoneout=0.0,
    starts=None,
    reset_h=0.0,
    reset_c=0.0,
    dtype="float64",
):
    """Outputs (B, T, U) in the order of visits, and the final states."""

    def norm(z, site, part=slice(None)):
        gamma, beta = (weights.get(f"{site}_{k}") for k in ("gamma", "beta"))
        gamma, beta = (None if v is None else v[part] for v in (gamma, beta))
        return normalized(z, gamma, beta, epsilon, UNIT_ROUNDOFF[dtype])

    weights = weights | {"sum_by_gate": sum_by_gate}
    batch, steps, _ = x.shape
    mask = np.ones((batch, steps), bool) if mask is None else mask
    visits = range(steps)
    outputs = []
    for t in reversed(visits) if go_backwards else visits:
        if starts is not None:
            states = [
                np.where(starts[:, t, None], new, old)
                for new, old in zip((reset_h, reset_c), states, strict=False)
            ]
        x_t = np.where(mask[:, t, None], x[:, t], 0.0) * input_mask
        new = STEPS[cell](
            x_t @ weights["kernel"] if "kernel" in weights else x_t,
            (states[0] * recurrent_mask) @ weights["recurrent_kernel"],
            states,
            weights,
            norm,
            carry_normalized_state,
        )
        stays = [
            z[:, t] if isinstance(z, np.ndarray) else z
            for z in (zoneout, cell_zoneout)
        ]
        # Of h, and of c where there is one.
        new = [
            z * a + (1 - z) * b
            for z, a, b in zip(stays, states, new, strict=False)
        ]
        states = [
            np.where(mask[:, t, None], b, a)
            for a, b in zip(states, new, strict=True)
        ]
        outputs.append(states[0])
    return np.stack(outputs, axis=1), states


def along(function, arguments, direction):
    """The derivative of a scalar function of arrays by name, along arrays."""
    step = 1e-30
    moved = {
        name: value + 1j * step * direction[name]
        if name in direction
        else value
        for name, value in arguments.items()
    }
    return function(moved).imag / step
