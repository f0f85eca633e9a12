"""What the public ops for sequences and for steps share: their options."""

import functools
import inspect
import reprlib
from collections.abc import Callable
from typing import Any, ParamSpec, TypedDict, TypeVar

from keras_ln.ops import arguments
from keras_ln.ops.cells.types import Switch
from keras_ln.ops.recurrence import zoneout
from keras_ln.ops.recurrence.functions import over_time
from keras_ln.ops.symbolic import takes_symbolic_tensors

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
    """The options that one step has too."""

    input_mask: Any
    recurrent_mask: Any
    zoneout: Any


# The texts that docstrings of ops share, by their placeholders.
_SHARED = {
    "    epsilon: {epsilon}": """\
    epsilon: finite number > 0, inside the square root. Where a variance is zero
        up to rounding, `sqrt(var) <= 16 u |mean|` with u the unit roundoff of
        the dtype that is computed in, `1 / sqrt(var + epsilon)` is 1, a
        constant. Moving variances are taken as they are.""",
    "    **options: {options}": """\
    mask: bool tensor (B, T), False where a row's step is left out: the states
        stay, and the output is the h that is carried. The sequences may hold
        anything there, NaN too.
    input_mask: dropout mask of the inputs (B, D), scaled; a constant.
    recurrent_mask: dropout mask of h (B, U) before the recurrent product,
        scaled; a constant.
    zoneout: what stays of h, besides what the step makes of it. A number z in
        [0, 1): h' = z * h + (1 - z) * h_new, as at inference. A bool tensor
        (B, T, U), the choices of training: True where a unit keeps its h.
    go_backwards: process the last step first; outputs come in the order of
        processing.
    return_all_outputs: whether to return the outputs of every step.
    training: whether a gradient is likely to be asked for, a hint for
        TensorFlow alone: what it needs is then kept, else a gradient runs the
        sequence again. JAX and torch know.
    zero_output_for_mask: whether the output is zero at steps left out.
    reset: bool tensor (B, T), or zeros and ones, True at the first step, in
        time, of a new sequence: before it the row's states are replaced, also
        where the mask leaves the step out. With `go_backwards` they are
        replaced before the last step of every sequence. bn_lstm refuses it.
    reset_state: what replaces them, one tensor (B, U) or (1, U) per state;
        None for zeros. Without initial states the row starts from it too. No
        gradient passes a reset; this has its own.
    use_fused: "auto" runs one op with a hand-written gradient where it can,
        True raises where it cannot, False runs a loop that the framework
        differentiates.
    unroll: whether to unroll the loop over time; T must be known.""",
    "{returns}": """\
Returns:
    `(last_output, outputs, final_states)`: h after the last step (B, U), h
    after each step (B, T, U), or without `return_all_outputs` the last one
    (B, 1, U), both in the dtype of the sequences; and the states (B, U) in the
    dtypes of the initial ones, a list if they came in one, else a tuple. All
    between is computed in at least float32.

Raises:
    ValueError: for a wrong dtype, shape, weight name or epsilon, named in the
        message.""",
}
# The same for `{step}`, of ops that run one step.
_STEP = """\
Ordinary operations, differentiated by the framework, for loops of your own:
generation, rollouts, `jax.lax.scan`.

Args:
    inputs: floating-point tensor (B, D).
    states: tensors (B, U) as {op} takes them, or None for zeros.
    weights: as in {op}.
    input_mask: dropout mask of the inputs (B, D), scaled; a constant.
    recurrent_mask: dropout mask of h (B, U) before the recurrent product,
        scaled; a constant.
    zoneout: what stays of h: a number in [0, 1), or a bool tensor (B, U), True
        where a unit keeps its h.

Returns:
    `(h, new_states)`: h (B, U) in the dtype of the inputs, and the states in
    their dtypes, a list if they came in one, else a tuple."""


def sequence_op(
    function: Callable[_P, _R], like: Callable[..., Any] | None = None
) -> Callable[_P, _R]:
    """A public op with `**options`, for symbolic tensors too.

    Its signature and docstring list them: the options of every op, or all that
    `like` has, another op to which the function hands them.
    """
    if like is None:
        # In this order: the defaults of `over_time` are the public ones.
        shared = _parameters(over_time)
        options = [shared[name] for name in Options.__annotations__]
    else:
        shared = _parameters(like)
        options = [p for p in shared.values() if p.kind is p.KEYWORD_ONLY]
    return _public(function, options, _SHARED)


def step_op(
    sequences_op: Callable[..., Any],
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """A decorator of public ops: one step of an op for sequences.

    Signature and docstring list the options of `sequences_op` that one step
    has too.
    """
    of_time = set(Options.__annotations__) - set(StepOptions.__annotations__)
    options = [
        parameter
        for name, parameter in _parameters(sequences_op).items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in of_time
    ]
    text = _STEP.replace("{op}", f"`{sequences_op.__name__}`")
    return lambda function: _public(function, options, {"{step}": text})


def unchecked(op: Callable[..., _R]) -> Callable[..., _R]:
    """The op behind a public one, which refuses the option of `one_step`."""
    return inspect.unwrap(op)


def one_step(
    sequences_op: Callable[..., Any],
    inputs: Any,
    states: Any,
    weights: dict[str, Any],
    **options: Any,
) -> tuple[Any, Any]:
    """H (B, U) and the new states for inputs (B, D), by ordinary operations."""
    inputs = arguments.dense_tensor("inputs", inputs)
    arguments.check_floating("inputs", inputs.dtype)
    arguments.check_rank("inputs", inputs.shape, "batch, features")
    arguments.check_known("inputs", inputs.shape, -1)
    for name in zoneout.NAMES:
        zone = options.get(name)
        if zone is not None and not zoneout.is_rate(zone):
            zone = arguments.dense_tensor(name, zone)
            arguments.check_rank(name, zone.shape, "batch, units")
            options[name] = zone[:, None]
    options |= {"use_fused": False, "unroll": True, "states_name": "states"}
    op = unchecked(sequences_op)
    h, _, states = op(inputs[:, None], states, weights, **options)
    return h, states


def _public(
    function: Callable[_P, _R], options: list[Any], texts: dict[str, str]
) -> Callable[_P, _R]:
    """The function with its options in signature and docstring."""
    signature = inspect.signature(function)
    parameters = [*list(signature.parameters.values())[:-1], *options]
    vars(function)["__signature__"] = signature.replace(parameters=parameters)
    # There are no docstrings under `python -OO`.
    if doc := inspect.getdoc(function):
        for name, text in texts.items():
            doc = doc.replace(name, text)
        function.__doc__ = doc
    # Zoneout of a state that the cell does not have is refused by `run`.
    known = {parameter.name for parameter in parameters} | {*zoneout.NAMES}

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs:
            if name not in known:
                raise TypeError(
                    f"keras_ln.ops.{function.__name__} has no argument "
                    f"`{name}`.{arguments.nearest(name, known)} Received: "
                    f"{name}={kwargs[name]!r}"
                )
        # The third of every op; without any, Python says so.
        weights = args[2] if len(args) > 2 else kwargs.get("weights", {})
        # torch.nn.ParameterDict is no Mapping.
        if not all(hasattr(weights, name) for name in ("keys", "items")):
            raise ValueError(
                "Argument `weights` must be a dict of tensors by name. "
                f"Received: weights={reprlib.repr(weights)}"
            )
        return function(*args, **kwargs)

    return takes_symbolic_tensors(checked)


def _parameters(function: Callable[..., Any]) -> Any:
    return inspect.signature(function).parameters
