"""The public functions' way to recurrences: arguments become arrays.

Letters: B batch, T time, D input features, U units, n gates.
"""

from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine import arguments, dtypes
from keras_ln.engine import bind as checks
from keras_ln.engine.activations import get_activation
from keras_ln.engine.dispatch import run
from keras_ln.engine.scan import run_step
from keras_ln.engine.spec import Cell, How, Spec, Switch
from keras_ln.engine.zoneout import NAMES, is_rate


def spec_of(
    cell: Cell,
    dtype: str,
    *,
    epsilon: float = 1e-5,
    activation: Any = "tanh",
    recurrent_activation: Any = "sigmoid",
    **fields: Any,
) -> Spec:
    """The `Spec` for arguments; further arguments are fields of `Spec`."""
    return Spec(
        cell,
        arguments.check_epsilon(epsilon, allow_zero=False),
        get_activation(activation),
        get_activation(recurrent_activation),
        dtype=dtype,
        wide=dtypes.at_least_float32(dtype),
        **fields,
    )


def over_time(
    cell: Cell,
    sequences: Any,  # (B, T, D), floating point
    initial_states: Any,  # tensors (B, U), h first, or None for zeros
    weights: dict[str, Any],  # kernel, recurrent_kernel and the vectors
    *,
    owner: str = "the op",
    mask: Any = None,
    input_mask: Any = None,
    recurrent_mask: Any = None,
    zoneout: Any = 0.0,
    cell_zoneout: Any = None,
    go_backwards: bool = False,
    return_all_outputs: bool = True,
    training: bool = True,
    zero_output_for_mask: bool = False,
    zero_before_valid: bool = False,
    reset: Any = None,
    reset_state: Any = None,
    use_fused: Switch = "auto",
    unroll: bool = False,
    states_name: str = "initial_states",
    constants: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """The cell over time, by the first implementation that can run it.

    It takes the arguments of the public functions. Errors call the initial
    states `states_name`; `constants` are further arrays by name; the settings
    are arguments of `spec_of`.

    Returns:
        `(last_output, outputs, final_states, made)`. The states are a list if
        the initial ones are, else a tuple. The outputs (B, T, U), or without
        `return_all_outputs` only the last one (B, 1, U), are in the dtype of
        the sequences. `made` has all results of `run`.

    Raises:
        ValueError: for wrong arguments, named in the message.
    """
    x, weights = checks.tensors_of(sequences, weights)
    checks.check_sequences(x)
    units = checks.check_weights(cell, weights, x.shape[-1])
    arrays = checks.resets(cell, reset, reset_state, x, units, owner)
    if initial_states is not None:
        arrays |= checks.states(
            cell, "initial", initial_states, x, units, states_name
        )
    elif reset_state is not None:
        names = cell.state_names
        arrays |= {f"initial_{n}": arrays[f"reset_{n}"] for n in names}
    else:
        arrays |= checks.zero_states(cell, x, units)
    zones = {"zoneout": zoneout, "cell_zoneout": cell_zoneout}
    shares, choices = split_zoneout(cell, owner, **zones)
    given = {"mask": mask, "input_mask": input_mask}
    given |= {"recurrent_mask": recurrent_mask, **choices}
    arrays |= {
        name: checks.array(name, value, x, units)
        for name, value in given.items()
        if value is not None
    }
    if go_backwards and "starts" in arrays:
        arrays["starts"] = starts_backwards(arrays["starts"])
    spec = spec_of(
        cell,
        dtypes.name_of(x.dtype),
        go_backwards=go_backwards,
        return_all_outputs=return_all_outputs,
        **shares,
        **settings,
    )
    made = run(
        spec,
        {"x": x, **arrays, **weights, **(constants or {})},
        How(
            owner,
            use_fused,
            unroll,
            bool(training),
            zero_output_for_mask,
            zero_before_valid,
        ),
    )
    states = [made[f"final_{name}"] for name in cell.state_names]
    as_list = isinstance(initial_states, list)
    final_states = states if as_list else tuple(states)
    return made["last_output"], made["outputs"], final_states, made


def split_zoneout(
    cell: Cell, owner: str, **zoneout: Any
) -> tuple[dict[str, float], dict[str, Any]]:
    """Shares, as fields of `Spec`, and choices, by name of the array.

    Raises:
        ValueError: for a share outside [0, 1), and for zoneout of a state that
            the cell does not have.
    """
    shares, choices = {}, {}
    for name, value in zoneout.items():
        if value is None:
            continue
        if name not in NAMES[: cell.states]:
            raise ValueError(
                f"Argument `{name}` must be left out: {owner} has no state c. "
                f"Received: {name}={value!r}"
            )
        if is_rate(value):
            shares[f"{name}_share"] = arguments.check_rate(name, value)
        else:
            choices[name] = value
    return shares, choices


def starts_backwards(reset: Any) -> Any:
    """Flags (B, T) of resets going backwards, for flags of first steps.

    Going backwards, a sequence's last step in time is visited first.
    """
    last = keras.ops.zeros_like(reset[:, :1])
    return keras.ops.concatenate([reset[:, 1:], last], axis=1)


def project(inputs: Any, weights: dict[str, Any]) -> Any:
    """`x W` (..., nU) of inputs (..., D), in their dtype."""
    return backend.matmul(inputs, weights["kernel"])


def step(
    cell: Cell,
    projected: Any,
    states: tuple[Any, ...],
    weights: dict[str, Any],
    *,
    recurrent_mask: Any = None,
    moving: Any = None,
    **settings: Any,
) -> tuple[Any, ...]:
    """The states after one step of the cell, for arguments of `run_step`.

    The settings are arguments of `spec_of`; `moving` is a structure of
    constants (B, ...), or None.
    """
    constants = keras.tree.flatten(moving)
    wide = dtypes.wide_dtype(projected, *states, *weights.values(), *constants)
    if moving is not None:
        moving = keras.tree.map_structure(
            lambda x: backend.cast(x, wide), moving
        )
    return run_step(
        spec_of(cell, wide, **settings),
        projected,
        states,
        weights,
        recurrent_mask=recurrent_mask,
        moving=moving,
    )[0]
