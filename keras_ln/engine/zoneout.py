"""Zoneout: after a step, units may keep their state from before it.

    s' = m * s + (1 - m) * s_new    in training, m being 0 or 1
    s' = z * s + (1 - z) * s_new    at inference: the expectation

`scan.py` applies it in the loop over time, `vjp.py` its gradient, and
`layers/rnn/base_cell.py` applies it when Keras runs a cell.

The choices m are 1 with the probability z, drawn for every row, step and unit.
They are ordinary tensors, drawn before the loop over time, so that the scans
forward and backward use the same choices.

Source: Krueger et al., "Zoneout: Regularizing RNNs by Randomly Preserving
Hidden Activations" (2017).

Letters: B batch, T time, U units. Zoneout of a state is given by a rate z, or
by choices, a bool tensor that is True for units that keep their state.
"""

import numbers
from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine import dtypes

Shares = tuple[float, ...]
# Of h and of c.
NAMES = ("zoneout", "cell_zoneout")
# As many as half the bits of a float32 in [0, 1) can tell apart.
_LEVELS = 2048.0
# Multiples of this number, modulo 2^32, are far from each other.
_STRIDE = 0x61C88647
# The whole numbers to which counting by ones leads, by dtype.
COUNTS_TO = {"float16": 2048, "bfloat16": 256, "float32": 2**24}


def apply_zoneout(
    shares: Shares, new: tuple[Any, ...], old: tuple[Any, ...], choices: Any
) -> tuple[Any, ...]:
    """The states (B, U) after zoneout, each in the dtype of the new one.

    Args:
        shares: rates, h first.
        new: the states after the step, h first.
        old: the states before the step.
        choices: tensors by name, for any of `NAMES`.
    """
    return tuple(
        _zoned(new, old, share, choices.get(name))
        for name, new, old, share in zip(NAMES, new, old, shares, strict=False)
    )


def apply_zoneout_vjp(
    shares: Shares, cotangents: tuple[Any, ...], choices: Any
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Cotangents of the new states, and of the old ones through zoneout."""
    pairs = [
        _zoned_vjp(cotangent, share, choices.get(name))
        for name, cotangent, share in zip(
            NAMES, cotangents, shares, strict=False
        )
    ]
    return tuple(new for new, _ in pairs), tuple(old for _, old in pairs)


def _zoned(new: Any, old: Any, rate: float, choice: Any) -> Any:
    if choice is not None:
        return backend.where(choice, old, new)
    if not rate:
        return new
    wide = dtypes.at_least_float32(new.dtype)
    cast = backend.cast
    mean = rate * cast(old, wide) + (1.0 - rate) * cast(new, wide)
    return cast(mean, new.dtype)


def _zoned_vjp(cotangent: Any, rate: float, choice: Any) -> tuple[Any, Any]:
    if choice is not None:
        return (
            backend.where(choice, 0.0, cotangent),
            backend.where(choice, cotangent, 0.0),
        )
    if not rate:
        return cotangent, None
    return (1.0 - rate) * cotangent, rate * cotangent


def is_rate(value: Any) -> bool:
    """Whether it is a number, not a tensor of choices."""
    return isinstance(value, numbers.Real)


def draw(rates: dict[str, float], shape: Any, seed: Any) -> dict[str, Any]:
    """Choices of that shape, bool, for the rates by name that are not 0.

    Args:
        rates: numbers in [0, 1), one or two.
        shape: of the choices, the last size known.
        seed: a seed for functions of `keras.random`.
    """
    # The random numbers are the main cost, especially on JAX. So one number
    # serves two units, with half of its bits each, and both states.
    *rows, units = shape
    numbers = keras.random.uniform(
        (*rows, (units + 1) // 2 + 1), dtype="float32", seed=seed
    )
    scaled, dither = numbers[..., :-1] * _LEVELS, numbers[..., -1:]
    upper = keras.ops.floor(scaled)
    lower = keras.ops.floor((scaled - upper) * _LEVELS)
    level = keras.ops.concatenate([upper, lower], axis=-1)[..., :units]

    def below(rate: float) -> Any:
        # A threshold between two levels is rounded up or down at random, so
        # that the probability is exactly the rate.
        return level < keras.ops.floor(rate * _LEVELS + dither)

    h = rates["zoneout"]
    drawn = {"zoneout": below(h)} if h else {}
    if c := rates.get("cell_zoneout"):
        drawn["cell_zoneout"] = below(c)
        if h:
            # Units below h * c keep both states, and units from h to
            # h + c - h * c keep only c. So the two choices are independent.
            c_alone = below(h + c - h * c) & ~drawn["zoneout"]
            drawn["cell_zoneout"] = below(h * c) | c_alone
    return drawn


def counted(counter: Any, again: int = 0) -> Any:
    """The counter plus one, or `again` if its dtype counts no further.

    Keras' loop turns float32 into the compute dtype.
    """
    dtype = keras.backend.standardize_dtype(counter.dtype)
    ends = counter >= COUNTS_TO.get(dtype, COUNTS_TO["float32"])
    first = keras.ops.zeros_like(counter) + again
    return keras.ops.where(ends, first, counter + 1)


class SeedAt(keras.random.SeedGenerator):
    """The seed of a step, for loops, in which no seed can be drawn.

    Functions of `keras.random` take no tensor as a seed.
    """

    def __init__(self, seed: Any, counter: Any) -> None:
        """The seed (2,) of a sequence, at a counter (B, 1) of whole numbers."""
        # The sum changes whenever any row goes on.
        done = keras.ops.sum(keras.ops.cast(counter, seed.dtype))
        stride = keras.ops.convert_to_tensor([_STRIDE, 0], dtype=seed.dtype)
        self._seed = seed + (keras.ops.cast(done, seed.dtype) + 1) * stride

    def next(self, ordered: bool = True) -> Any:
        """The seed."""
        return self._seed
