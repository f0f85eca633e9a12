"""What all public ops for sequences and for steps share.

Letters: B batch, T time, D input features, U units, n gates.
"""

import functools
import inspect
import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypedDict, TypeVar

import keras

from keras_ln.engine import arguments, bind, dtypes
from keras_ln.engine.dispatch import run
from keras_ln.engine.spec import (
    MATRICES,
    Cell,
    RunOptions,
    Spec,
    Switch,
    Tensors,
    spec_of,
)
from keras_ln.engine.zoneout import NAMES, is_rate
from keras_ln.ops.argument_table import ARGUMENTS, RATE, accept, describe
from keras_ln.ops.symbolic import takes_symbolic_tensors

if TYPE_CHECKING:  # In typing since Python 3.11.
    from typing_extensions import Unpack

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Options(TypedDict, total=False):
    """The options, in the order in which they are listed."""

    mask: Any
    input_mask: Any
    recurrent_mask: Any
    zoneout: Any
    go_backwards: bool
    return_all_outputs: bool
    training: bool
    zero_output_for_mask: bool
    reset: Any
    reset_state: Any
    use_fused: Switch
    unroll: bool


class StepOptions(TypedDict, total=False):
    """The options that ops for one step have too."""

    input_mask: Any
    recurrent_mask: Any
    zoneout: Any


class StepOp(Protocol):
    """A public op for one step."""

    def __call__(
        self,
        inputs: Any,
        states: Any,
        weights: dict[str, Any],
        **options: "Unpack[StepOptions]",
    ) -> tuple[Any, Any]:
        """H and the new states."""


# The others may be tensors, zoneout too, and are checked by `run`.
_CHECKED = {
    name for name, row in ARGUMENTS.items() if row.kind not in (None, RATE)
}
# The ends of names of weights, which callers may take for arguments.
_WEIGHTS = ("kernel", "gamma", "beta")
# Replaces `{returns}` in docstrings.
_RETURNS = """\
Returns:
    `(last_output, outputs, final_states)`: h after the last step (B, U); h
    after each step (B, T, U), or without `return_all_outputs` after the last
    step (B, 1, U); both in the dtype of the sequences; and the states (B, U) in
    the dtypes of the initial ones, a list if these are a list, else a tuple.
    Everything between is computed in at least float32.

Raises:
    ValueError: for a wrong dtype, shape, weight name or epsilon, named in the
        message."""
# The docstring of ops that run one step.
_STEP = """\
One step of `{op}`, with its equations, options and errors.

It consists of ordinary operations, which the framework differentiates, and is
meant for your own loops: generation, rollouts, `jax.lax.scan`.

Args:
    inputs: floating-point tensor (B, D).
    states: tensors (B, U) as `{op}` takes them, or None for zeros.
    weights: as in `{op}`.
    {arguments}

Returns:
    `(h, new_states)`: h (B, U) in the dtype of the inputs, and the states in
    the dtypes of the given ones, a list if these are a list, else a tuple.

>>> import keras
>>> ones = keras.ops.ones
>>> weights = {weights}
>>> h, states = {op}_step(ones((2, 3)), None, weights)
>>> tuple(h.shape)
(2, 4)"""


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
        `(last_output, outputs, final_states, results)`. The states are a list
        if the initial ones are, else a tuple. The outputs (B, T, U), or without
        `return_all_outputs` only the last one (B, 1, U), are in the dtype of
        the sequences. `results` are those of `run`.

    Raises:
        ValueError: for wrong arguments, named in the message.
    """
    x, weights = tensors_of(sequences, weights)
    check_sequences(x)
    zones = {"zoneout": zoneout, "cell_zoneout": cell_zoneout}
    shares, choices = _split_zoneout(cell, owner, **zones)
    spec = spec_of(
        cell,
        dtypes.name_of(x.dtype),
        go_backwards=go_backwards,
        return_all_outputs=return_all_outputs,
        **shares,
        **settings,
    )
    check_weights(spec, weights, x.shape[-1])
    options = RunOptions(
        owner,
        use_fused,
        unroll,
        bool(training),
        zero_output_for_mask,
        zero_before_valid,
        states_name,
    )
    arrays = bind.bind(
        cell,
        cell.sizes(weights["recurrent_kernel"].shape[0]),
        x,
        weights,
        options,
        initial_state=initial_states,
        reset=reset,
        reset_state=reset_state,
        go_backwards=go_backwards,
        mask=mask,
        input_mask=input_mask,
        recurrent_mask=recurrent_mask,
        **choices,
        **(constants or {}),
    )
    results = run(spec, arrays, options)
    states = [results[f"final_{name}"] for name in cell.states]
    return (
        results["last_output"],
        results["outputs"],
        states if isinstance(initial_states, list) else tuple(states),
        results,
    )


def tensors_of(sequences: Any, weights: dict[str, Any]) -> tuple[Any, Tensors]:
    """Both as tensors; integer weights become floating point.

    Otherwise directions and statistics would be truncated.

    Raises:
        ValueError: unless they are dense tensors of numbers.
    """
    sequences = arguments.dense_tensor("sequences", sequences)
    tensors = {}
    for name, weight in weights.items():
        place = f"weights[{name!r}]"
        tensor = arguments.dense_tensor(place, weight)
        arguments.check_numbers(place, tensor.dtype)
        if "float" not in dtypes.name_of(tensor.dtype):
            wide = dtypes.at_least_float32(sequences.dtype)
            tensor = keras.ops.cast(tensor, wide)
        tensors[name] = tensor
    kernel = tensors.get("kernel", sequences)
    if len(kernel.shape) == 2 and len(sequences.shape) == 3:
        sequences = arguments.with_features(sequences, kernel.shape[0])
    return sequences, tensors


def check_sequences(sequences: Any) -> None:
    """`ValueError` unless this is a floating-point tensor (B, T, D)."""
    arguments.check_floating("sequences", sequences.dtype)
    arguments.check_rank("sequences", sequences.shape, "batch, time, features")
    arguments.check_steps("sequences", sequences.shape)
    arguments.check_known("sequences", sequences.shape, -1)


def check_weights(spec: Spec, weights: Tensors, features: int) -> None:
    """`ValueError` unless the weights, by name, fit the cell and D."""
    if missing := [name for name in MATRICES if name not in weights]:
        raise ValueError(
            f"Argument `weights` must hold {' and '.join(MATRICES)}. "
            f"Received: weights without {' and '.join(missing)}."
        )
    for name in MATRICES:
        arguments.check_weight(name, weights[name], ("inputs", "columns"))
    units = weights["recurrent_kernel"].shape[0]
    shapes = spec.cell.weight_shapes(features, units, spec.vectors)
    # What is unknown first.
    for name in sorted(weights, key=shapes.__contains__):
        weight = weights[name]
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


def _split_zoneout(
    cell: Cell, owner: str, **rates: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Shares, as fields of `Spec`, and choices, by name of the array.

    Raises:
        ValueError: for a share outside [0, 1), and for zoneout of a state that
            the cell does not have.
    """
    shares, choices = {}, {}
    for name, value in rates.items():
        if value is None:
            continue
        if name not in NAMES[: len(cell.states)]:
            raise arguments.wrong(
                name, f"left out: {owner} has no state c", value
            )
        if is_rate(value):
            shares[f"{name}_share"] = arguments.check_rate(name, value)
        else:
            choices[name] = value
    return shares, choices


def sequence_op(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Makes a function with `**options` a public op, for symbolic tensors too.

    Its signature and docstring list the options of every op.
    """
    # In the order of `Options`, with the defaults of `over_time`.
    shared = _parameters(over_time)
    options = [shared[name] for name in Options.__annotations__]
    return _public(function, options, "function")


def step_op(
    sequences_op: Callable[..., Any], run_op: Callable[..., Any], weights: str
) -> StepOp:
    """The public op for one step of `sequences_op`, by ordinary operations.

    `run_op` takes the arguments of `over_time`; `weights` are those of the
    docstring's example, for 3 features and 4 units.
    """

    def step(
        inputs: Any, states: Any, weights: dict[str, Any], **options: Any
    ) -> tuple[Any, Any]:
        inputs = arguments.dense_tensor("inputs", inputs)
        arguments.check_floating("inputs", inputs.dtype)
        arguments.check_rank("inputs", inputs.shape, "batch, features")
        arguments.check_known("inputs", inputs.shape, -1)
        for name in NAMES:
            zone = options.get(name)
            if zone is not None and not is_rate(zone):
                zone = arguments.dense_tensor(name, zone)
                arguments.check_rank(name, zone.shape, "batch, units")
                options[name] = zone[:, None]
        options |= {"use_fused": False, "unroll": True, "states_name": "states"}
        options |= {"sequences": inputs[:, None], "initial_states": states}
        h, _, states = run_op(weights=weights, **options)
        return h, states

    op = sequences_op.__name__
    step.__name__ = step.__qualname__ = f"{op}_step"
    step.__module__ = sequences_op.__module__
    step.__doc__ = _STEP.replace("{op}", op).replace("{weights}", weights)
    of_time = set(Options.__annotations__) - set(StepOptions.__annotations__)
    options = [
        parameter
        for name, parameter in _parameters(sequences_op).items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in of_time
    ]
    return _public(step, options, "step")


def of_call(op: Callable[..., Any], scope: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an op's call by name, from its `locals()`.

    TensorFlow's AutoGraph adds variables of its own to those.
    """
    names = _parameters(op).keys() & scope.keys()
    return scope["options"] | {name: scope[name] for name in names}


def _public(
    function: Callable[_P, _R], options: list[Any], tag: str
) -> Callable[_P, _R]:
    """The function with its options in signature and docstring."""
    signature = inspect.signature(function)
    parameters = [*list(signature.parameters.values())[:-1], *options]
    vars(function)["__signature__"] = signature.replace(parameters=parameters)
    # There are no docstrings under `python -OO`.
    if doc := inspect.getdoc(function):
        doc = doc.replace("{returns}", _RETURNS)
        names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        listed = describe(names, {tag}, {"least": "> 0"}, beside=doc)
        function.__doc__ = doc.replace("    {arguments}", listed)
    # Zoneout of a state that the cell does not have is refused by `run`.
    known = {parameter.name for parameter in parameters} | {*NAMES}

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name, value in kwargs.items():
            if name not in known:
                hint = arguments.nearest(name, known)
                if name == "bias" or name.endswith(_WEIGHTS):
                    hint = f" Pass the weight as `weights[{name!r}]`."
                raise TypeError(
                    f"keras_ln.ops.{function.__name__} has no argument "
                    f"`{name}`.{hint} Received: {name}={reprlib.repr(value)}"
                )
            if name in _CHECKED:
                kwargs[name] = accept(name, value)
        # The third argument of every op; Python refuses calls without it.
        weights = args[2] if len(args) > 2 else kwargs.get("weights", {})
        # torch.nn.ParameterDict is no Mapping.
        if not all(hasattr(weights, name) for name in ("keys", "items")):
            raise ValueError(
                "Argument `weights` must be a dict of tensors by name, such "
                'as {"kernel": kernel, "recurrent_kernel": recurrent_kernel}. '
                f"Received: weights={reprlib.repr(weights)}"
            )
        return function(*args, **kwargs)

    return takes_symbolic_tensors(checked)


def _parameters(function: Callable[..., Any]) -> Any:
    return inspect.signature(function).parameters
