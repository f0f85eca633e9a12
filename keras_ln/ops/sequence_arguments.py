"""Checks of the arguments that the sequence ops share.

Letters: B batch, T time, D input features, U units, n gates.
"""

from typing import Any

import keras

from keras_ln.ops import arguments
from keras_ln.ops.activations import ACTIVATIONS, Activation, get_activation
from keras_ln.ops.cell import Settings

MATRICES = ("kernel", "recurrent_kernel")


def check_sequence(
    sequences: Any,
    initial_states: Any,
    weights: dict[str, Any],
    *,
    vectors: dict[str, int],
    gates: int,
    states: int,
    epsilon: float,
    activation: Any,
    recurrent_activation: Any = None,
    also: tuple[Any, ...] = (),
) -> tuple[Any, tuple[Any, ...], dict[str, Any], Settings]:
    """Converts and checks what every sequence op takes.

    Args:
        sequences: floating-point tensor (B, T, D).
        initial_states: tensors (B, U), or None for zeros.
        weights: tensors by name.
        vectors: the vectors that there can be, with their sizes in U.
        gates: n.
        states: how many states there are.
        epsilon: number > 0.
        activation: name or Keras activation.
        recurrent_activation: likewise, None in cells without gates.
        also: further tensors that count where the dtype is chosen.

    Returns:
        Sequences, states, weights and settings for `recurrence.run`. What is
        computed in, and the dtype of the vectors, is float64 where any of
        the tensors is, else float32.

    Raises:
        ValueError: naming the argument, what was expected and what came.
    """
    sequences = arguments.dense_tensor("sequences", sequences)
    arguments.check_floating("sequences", sequences.dtype)
    arguments.check_rank("sequences", sequences.shape, "batch, time, features")
    arguments.check_steps("sequences", sequences.shape)
    features = arguments.check_known("sequences", sequences.shape, -1)
    if missing := [name for name in MATRICES if name not in weights]:
        raise ValueError(
            f"Argument `weights` must hold {' and '.join(MATRICES)}. "
            f"Received: weights without {' and '.join(missing)}."
        )
    weights = weight_tensors(
        weights, arguments.statistics_dtype(sequences.dtype)
    )
    for name in MATRICES:
        arguments.check_weight(name, weights[name], ("inputs", "columns"))
    units = weights["recurrent_kernel"].shape[0]
    shapes: dict[str, tuple[int, ...]] = {
        "kernel": (features, gates * units),
        "recurrent_kernel": (units, gates * units),
    }
    shapes |= {name: (size * units,) for name, size in vectors.items()}
    for name, weight in weights.items():
        if name not in shapes:
            raise ValueError(
                f"Argument `weights` may hold {', '.join(shapes)}. "
                f"Received: a weight {name!r}."
            )
        arguments.check_weight(
            name,
            weight,
            shapes[name],
            f" for {features} features and {units} units",
        )
    states_in = _check_states(initial_states, states, sequences, units)
    wide = arguments.wide_dtype(sequences, *states_in, *weights.values(), *also)
    weights = {
        name: keras.ops.cast(
            weight, sequences.dtype if name in MATRICES else wide
        )
        for name, weight in weights.items()
    }
    settings = Settings(
        arguments.check_epsilon(epsilon, allow_zero=False),
        _differentiable("activation", activation),
        None
        if recurrent_activation is None
        else _differentiable("recurrent_activation", recurrent_activation),
        dtype=wide,
    )
    return sequences, states_in, weights, settings


def weight_tensors(weights: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The weights as tensors, whole numbers in `dtype`.

    Directions and statistics would be cut to whole numbers else.
    """

    def converted(weight: Any) -> Any:
        tensor = keras.ops.convert_to_tensor(weight)
        received = keras.backend.standardize_dtype(tensor.dtype)
        if keras.backend.is_float_dtype(received):
            return tensor
        return keras.ops.cast(tensor, dtype)

    return {name: converted(weight) for name, weight in weights.items()}


def _check_states(
    initial_states: Any, count: int, sequences: Any, units: int
) -> tuple[Any, ...]:
    if initial_states is None:
        zeros = keras.ops.zeros(
            (keras.ops.shape(sequences)[0], units), dtype=sequences.dtype
        )
        # The first one is h; those that add up are wider.
        wide = arguments.statistics_dtype(sequences.dtype)
        return (zeros, *[keras.ops.cast(zeros, wide)] * (count - 1))
    states = tuple(
        keras.ops.convert_to_tensor(state)
        for state in keras.tree.flatten(initial_states)
    )
    if len(states) != count:
        raise ValueError(
            f"Argument `initial_states` must be {count} tensor(s) of shape "
            f"(batch, units), units being {units}. Received: shapes "
            f"{[tuple(state.shape) for state in states]}."
        )
    given = states if keras.tree.is_nested(initial_states) else states[0]
    for place, state in arguments.places("initial_states", given):
        # Whole numbers would cut off what each step adds.
        arguments.check_floating(place, state.dtype)
        arguments.check_shape(
            place, state.shape, (sequences.shape[0], units), "batch, units"
        )
    return states


def check_masks(
    sequences: Any,
    units: int,
    mask: Any,
    input_mask: Any,
    recurrent_mask: Any,
) -> tuple[Any, Any, Any]:
    """Converts and checks the masks of `sequences` (B, T, D), or None each.

    Returns:
        The mask as bool (B, T), those of dropout, (B, D) and (B, U), in the
        dtype of the sequences.

    Raises:
        ValueError: naming the argument, what was expected and what came.
    """
    batch, _, features = sequences.shape
    if mask is not None:
        mask = arguments.check_time_mask(mask, sequences.shape)
    checked = [mask]
    for name, dropout, size, letters in (
        ("input_mask", input_mask, features, "batch, features"),
        ("recurrent_mask", recurrent_mask, units, "batch, units"),
    ):
        if dropout is not None:
            dropout = keras.ops.cast(
                keras.ops.convert_to_tensor(dropout), sequences.dtype
            )
            arguments.check_shape(name, dropout.shape, (batch, size), letters)
        checked.append(dropout)
    return tuple(checked)


def _differentiable(name: str, identifier: Any) -> Activation:
    activation = get_activation(identifier)
    if activation.derivative is None:
        raise ValueError(
            f"Argument `{name}` must be one of "
            f"{', '.join(sorted(ACTIVATIONS))}. Received: "
            f"{name}={identifier!r}"
        )
    return activation
