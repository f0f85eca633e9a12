"""Zoneout: after a step, units may keep the state that they had before it.

    s' = m * s + (1 - m) * s_new    in training, m being 0 or 1
    s' = z * s + (1 - z) * s_new    at inference: the expectation

The choices m are 1 with the probability z, anew for every row, step and unit.
They are tensors like any other, drawn before the loop over time, so that
forward and backward see the same.

Source: Krueger et al., "Zoneout: Regularizing RNNs by Randomly Preserving
Hidden Activations" (2017).

Letters: B batch, T time, U units. `kept` says what stays of each state, h
first: a share z, a bool tensor (B, U) that is True where a unit keeps it, or
None; it is () where nothing stays.
"""

import numbers
from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops import arguments

# Of h and of c.
NAMES = ("zoneout", "cell_zoneout")
# As many as half the bits of a float32 in [0, 1) can tell apart.
_LEVELS = 2048.0
# Multiples of it, modulo 2^32, are far from each other.
_STRIDE = 0x61C88647
# The whole numbers to which counting by ones leads, by dtype.
COUNTS_TO = {"float16": 2048, "bfloat16": 256, "float32": 2**24}


def zoned(new: Any, old: Any, kept: tuple[Any, ...]) -> tuple[Any, ...]:
    """The states (B, U) after zoneout, each in the dtype of the new one."""
    if not any(k is not None for k in kept):
        return tuple(new)
    return tuple(map(_zoned, new, old, kept))


def zoned_vjp(cotangents: Any, kept: tuple[Any, ...]) -> tuple[Any, Any]:
    """Those of the new states, and of the old ones beside the step."""
    if not any(k is not None for k in kept):
        return cotangents, (None,) * len(cotangents)
    pairs = list(map(_zoned_vjp, cotangents, kept))
    return tuple(new for new, _ in pairs), tuple(old for _, old in pairs)


def _zoned(new: Any, old: Any, kept: Any) -> Any:
    if kept is None:
        return new
    if not isinstance(kept, float):
        return backend.where(kept, old, new)
    wide = arguments.at_least_float32(new.dtype)
    cast = keras.ops.cast
    mean = kept * cast(old, wide) + (1.0 - kept) * cast(new, wide)
    return cast(mean, new.dtype)


def _zoned_vjp(cotangent: Any, kept: Any) -> tuple[Any, Any]:
    if kept is None:
        return cotangent, None
    if isinstance(kept, float):
        return (1.0 - kept) * cotangent, kept * cotangent
    return (
        backend.where(kept, 0.0, cotangent),
        backend.where(kept, cotangent, 0.0),
    )


def kept_of(
    shares: tuple[float, ...], choices: tuple[Any, ...] | None
) -> tuple[Any, ...]:
    """What stays, where there may be choices (B, U), or None, by state."""
    if choices is None:
        return tuple(share or None for share in shares)
    shares = shares or (0.0,) * len(choices)
    return tuple(
        (share or None) if choice is None else choice
        for share, choice in zip(shares, choices, strict=True)
    )


def shares_of(count: int, given: dict[str, Any], owner: str) -> tuple[Any, ...]:
    """The shares of `count` states from numbers by name, () if all are zero.

    Raises:
        ValueError: for a number outside of [0, 1), or of a state that there
            is not.
    """
    shares = [
        arguments.check_share(name, share) if is_share(share) else 0.0
        for name, share in _by_state(count, given, owner).items()
    ]
    return tuple(shares) if any(shares) else ()


def choices_of(
    count: int, given: dict[str, Any], owner: str, shape: tuple[Any, ...]
) -> tuple[Any, ...] | None:
    """The tensors of `count` states among what is given by name, as bool.

    Raises:
        ValueError: for other dtypes or shapes than (B, T, U).
    """
    choices: list[Any] = []
    for name, value in _by_state(count, given, owner).items():
        if value is None or is_share(value):
            choices.append(None)
            continue
        tensor = arguments.dense_tensor(name, value)
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        if dtype != "bool":
            raise ValueError(
                f"Argument `{name}` must be a number in [0, 1), or a bool "
                "tensor, True where a unit keeps its state. Received: a "
                f"tensor of dtype {dtype}"
            )
        arguments.check_shape(name, tensor.shape, shape, "batch, time, units")
        choices.append(tensor)
    return None if choices == [None] * count else tuple(choices)


def is_share(value: Any) -> bool:
    """Whether it is a number, and no tensor of choices."""
    return isinstance(value, numbers.Real)


def _by_state(count: int, given: dict[str, Any], owner: str) -> dict[str, Any]:
    for name in NAMES[count:]:
        if given.get(name) is not None:
            raise ValueError(
                f"Argument `{name}` must be left out: {owner} has no state c. "
                f"Received: {name}={given[name]!r}"
            )
    return {name: given.get(name) for name in NAMES[:count]}


def draw(shares: dict[str, float], shape: Any, seed: Any) -> dict[str, Any]:
    """Choices of that shape, bool, for the shares by name; zeros stay.

    Args:
        shares: numbers in [0, 1), one or two.
        shape: of the choices, the last size known.
        seed: what functions of `keras.random` take.
    """
    # What costs is the random numbers, on JAX above all. So one serves two
    # units, with half of its bits each, and both states.
    *rows, units = shape
    numbers = keras.random.uniform(
        (*rows, (units + 1) // 2 + 1), dtype="float32", seed=seed
    )
    scaled, dither = numbers[..., :-1] * _LEVELS, numbers[..., -1:]
    upper = keras.ops.floor(scaled)
    lower = keras.ops.floor((scaled - upper) * _LEVELS)
    level = keras.ops.concatenate([upper, lower], axis=-1)[..., :units]

    def below(share: float) -> Any:
        # A threshold between two levels is rounded up or down at random, so
        # that the probability is exactly the share.
        return level < keras.ops.floor(share * _LEVELS + dither)

    h = shares["zoneout"]
    drawn: dict[str, Any] = dict(shares)
    if h:
        drawn["zoneout"] = below(h)
    if c := shares.get("cell_zoneout"):
        drawn["cell_zoneout"] = below(c)
        if h:
            # Units below h * c keep both states; those from h to h + c - h * c
            # keep c alone. So the two choices are independent.
            others = below(h + c - h * c) & ~drawn["zoneout"]
            drawn["cell_zoneout"] = below(h * c) | others
    return drawn


def zoned_alone(
    new: Any, old: Any, shares: dict[str, float], seed: Any, counter: Any
) -> tuple[Any, ...]:
    """The states (B, U) after a step that no layer has drawn choices for.

    Args:
        new: states, as the step makes them.
        old: those before it.
        shares: numbers in [0, 1) by name, one for each state.
        seed: that of the sequence (2,), or None for the expectation.
        counter: the steps that each row has done (B, 1), whole numbers.
    """
    choices = None
    if seed is not None:
        shape = keras.ops.shape(new[0])
        drawn = draw(shares, shape, SeedAt(seed, counter))
        choices = tuple(
            drawn[name] if share else None for name, share in shares.items()
        )
    return zoned(new, old, kept_of(tuple(shares.values()), choices))


def counted(counter: Any, again: int = 0) -> Any:
    """The counter plus one; `again` where its dtype counts no further.

    Keras' loop turns float32 into the compute dtype.
    """
    dtype = keras.backend.standardize_dtype(counter.dtype)
    ends = counter >= COUNTS_TO.get(dtype, COUNTS_TO["float32"])
    first = keras.ops.full_like(counter, again)
    return keras.ops.where(ends, first, counter + 1)


class SeedAt(keras.random.SeedGenerator):
    """The seed of a step: where a loop runs, none can be drawn.

    Functions of `keras.random` take no seed that is a tensor.
    """

    def __init__(self, seed: Any, counter: Any) -> None:
        """The seed for a counter.

        Args:
            seed: that of the sequence (2,), from a `SeedGenerator`.
            counter: the steps that each row has done (B, 1), whole numbers.
        """
        # Their sum is another one wherever any row goes on.
        done = keras.ops.sum(keras.ops.cast(counter, seed.dtype))
        stride = keras.ops.convert_to_tensor([_STRIDE, 0], dtype=seed.dtype)
        self._seed = seed + (keras.ops.cast(done, seed.dtype) + 1) * stride

    def next(self, ordered: bool = True) -> Any:
        """The seed."""
        return self._seed
