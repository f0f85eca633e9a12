"""The arguments of layers, cells and functions: what each means and may be.

A setting is written once, here. A layer and the function that it calls describe
it with the same words, and add what holds for one of them alone.

Letters: B batch, T time, U units.
"""

import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import keras

from keras_ln.ops import arguments
from keras_ln.ops.normalization.sites import check_groups, check_sites


class Kind(NamedTuple):
    """What a value may be."""

    # `check(name, value)`: the value as a layer keeps it; an error for others.
    check: Callable[[str, Any], Any]
    # What `get_config` gives for the value that is kept.
    serialize: Callable[[Any], Any] = lambda value: value


class Argument(NamedTuple):
    """An argument, which means the same wherever it is."""

    # It may have places for the words of a cell, such as {states}.
    doc: str
    # None for tensors, and what may be one: the call checks them.
    kind: Kind | None = None
    # What a sequence layer does with it: the cell gets it, or
    # `keras.layers.RNN`, or the layer keeps it. A "call" is a layer's or a
    # function's.
    place: Literal["cell", "keras", "layer", "call"] = "cell"
    # What else some say, by the tags that `describe` gets, or the name of a
    # cell without "Cell".
    more: Mapping[str, str] = {}


def _of_keras(module: Any, what: str) -> Kind:
    def check(name: str, value: Any) -> Any:
        try:
            return module.get(value)
        except (TypeError, ValueError) as error:
            # Keras does not say which of the arguments it is.
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"Argument `{name}` must be {what}: a name or a config that "
                f"Keras knows, a callable, or None. Received: {name}={value!r}."
                f" Keras says: {error}"
            ) from error

    return Kind(check, module.serialize)


def _or_none(check: Callable[[str, Any], Any]) -> Kind:
    return Kind(lambda n, value: None if value is None else check(n, value))


def _check_reset_after(name: str, value: Any) -> bool:
    if value is not True:
        raise ValueError(
            f"Argument `{name}` must be True: the layer normalises the "
            "recurrent product, and its reset gate multiplies that product, as "
            f"Keras' GRU does by default. Received: {name}={value!r}"
        )
    return True


ACTIVATION = _of_keras(keras.activations, "an activation")
INITIALIZER = _of_keras(keras.initializers, "an initializer")
REGULARIZER = _of_keras(keras.regularizers, "a regularizer")
CONSTRAINT = _of_keras(keras.constraints, "a constraint")
FLAG = Kind(arguments.check_flag)
RATE = Kind(arguments.check_rate)
SWITCH = Kind(arguments.check_switch)

ARGUMENTS = {
    "units": Argument(
        "U, how many units there are, a positive integer.",
        Kind(arguments.check_positive_integer),
    ),
    "axis": Argument(
        "one axis or several, normalised together.",
        Kind(lambda name, value: arguments.check_axis_type(value)),
    ),
    "max_steps": Argument(
        "S, how many steps have moving statistics of their own. None takes the "
        "number of steps of the inputs that the layer is built for.",
        _or_none(arguments.check_positive_integer),
    ),
    "momentum": Argument(
        "weight of the old value in the moving averages, 0 to 1.",
        Kind(arguments.check_fraction),
    ),
    "activation": Argument(
        "the function that the equations show as tanh or f: a name, a "
        'callable, or None for the identity. "linear", "relu", "sigmoid" and '
        '"tanh" run as one op over a sequence, others in a loop.',
        ACTIVATION,
    ),
    "recurrent_activation": Argument(
        "the function that the equations show as sigmoid, likewise.",
        ACTIVATION,
    ),
    "use_bias": Argument(
        "whether there is a bias.",
        FLAG,
        more={
            "LNGRU": "Where there is no `recurrent_beta`, there is a "
            "`recurrent_bias` too."
        },
    ),
    **{
        f"{weight}_{word}": Argument(f"{word} of {shown}.", kind)
        for word, kind in (
            ("initializer", INITIALIZER),
            ("regularizer", REGULARIZER),
            ("constraint", CONSTRAINT),
        )
        for weight, shown in (
            ("kernel", "`kernel`"),
            ("recurrent", "`recurrent_kernel`"),
            ("bias", "`bias`"),
            ("gamma", "every gamma"),
            ("beta", "every beta"),
        )
    },
    "moving_mean_initializer": Argument(
        "initializer of `moving_mean`.", INITIALIZER
    ),
    "moving_variance_initializer": Argument(
        "initializer of `moving_variance`.", INITIALIZER
    ),
    "unit_forget_bias": Argument("whether the bias of f starts at 1.", FLAG),
    "activity_regularizer": Argument(
        "regularizer of the output.", REGULARIZER, "keras"
    ),
    "dropout": Argument(
        "fraction of the inputs to drop, in [0, 1). One mask per sequence, "
        "shared by the gates.",
        RATE,
    ),
    "recurrent_dropout": Argument(
        "fraction of h to drop before the recurrent product, likewise.", RATE
    ),
    "seed": Argument(
        "seed of dropout masks and of zoneout's choices. Bidirectional hands "
        "the same integer to both directions, which then draw the same.",
        _or_none(arguments.check_integer),
    ),
    "return_sequences": Argument(
        "whether to return the outputs of all steps.", FLAG, "keras"
    ),
    "return_state": Argument(
        "whether to return the final {states} too.", FLAG, "keras"
    ),
    "go_backwards": Argument(
        "whether to process the last step first; outputs come in the order of "
        "processing.",
        *(FLAG, "keras"),
    ),
    "stateful": Argument(
        "whether to start from the final states of the last call.",
        *(FLAG, "keras"),
    ),
    "unroll": Argument(
        "whether to unroll the loop over time; T must be known.",
        *(FLAG, "keras"),
    ),
    "reset_after": Argument(
        "must be True, Keras' default: the reset gate applies after the "
        "product with `recurrent_kernel`.",
        Kind(_check_reset_after),
    ),
    "use_cudnn": Argument(
        "accepted and ignored, as an argument of Keras' layers.",
        *(SWITCH, "layer"),
    ),
    "use_fused": Argument(
        '"auto" runs one op with a hand-written gradient where it can, True '
        "raises where it cannot, False runs a loop that the framework "
        "differentiates.",
        *(SWITCH, "layer"),
    ),
    "normalize": Argument(
        "the sites to normalise, any of {sites}.",
        Kind(lambda name, value: check_sites(value)),
        more={
            "LNLSTM": '"sum", in place of "kernel" and "recurrent", is one '
            "normalisation of x W + h R, with `sum_gamma` and `sum_beta` (4U). "
            '`("state",)` is the form of the paper\'s DRAW experiment (eq. '
            "29-31)."
        },
    ),
    "center": Argument("whether there is {betas}.", FLAG),
    "scale": Argument("whether there is a `gamma`.", FLAG),
    "epsilon": Argument(
        "finite number {least}, inside the square root.",
        Kind(lambda name, value: arguments.check_epsilon(value)),
        more={
            "cell function step": "Where a variance is zero up to rounding, "
            "`sqrt(variance) <= 16 u |mean|` with u the unit roundoff of the "
            "dtype that is computed in, `1 / sqrt(variance + epsilon)` is "
            "replaced by 1, a constant: every step of zeros from a state of "
            "zero, such as padding, would otherwise multiply the gradient by "
            "`1 / sqrt(epsilon)`, 316, for each normalisation. Moving "
            "variances are taken as they are.",
            "LayerNormalization": "Keras' default is 1e-3, which shrinks small "
            "inputs; the authors' is 1e-5.",
        },
    ),
    "unbiased": Argument(
        "whether the training variance divides by n - 1 instead of n. With n = "
        "1 (a batch, or the unmasked part of it, of one) it is not defined: an "
        "error where that is known when the graph is built, NaN where it is "
        "not.",
        FLAG,
    ),
    "sequence_wise": Argument(
        "whether all steps share their statistics; `max_steps` is then not "
        "used.",
        FLAG,
    ),
    "carry_normalized_state": Argument(
        "whether the next step gets LN(c') in place of c', as in "
        "TensorFlow-Addons' LayerNormLSTMCell. The paper's does not (eq. "
        '21-22). It needs the site "state" to be normalised.',
        FLAG,
    ),
    "zoneout": Argument(
        "z, the probability that a unit keeps its h, in [0, 1). Where the "
        "equations give h_new, training has h' = m * h + (1 - m) * h_new, with "
        "m drawn for every row, step and unit, 1 with probability z and else "
        "0; inference has the expectation h' = z * h + (1 - z) * h_new "
        '(Krueger et al., "Zoneout", 2017).',
        RATE,
        more={
            "cell": "A cell then has one more state, (B, 1), which counts the "
            "steps; inside another cell, or in a loop of your own, it repeats "
            "its choices until you call its `forget_dropout_masks`.",
            "function": "A number gives the expectation, a bool tensor (B, T, "
            "U) is m.",
            "step": "A number gives the expectation, a bool tensor (B, U) is "
            "m.",
        },
    ),
    "cell_zoneout": Argument(
        "as `zoneout`, for c, with choices of its own. The h of the step is "
        "computed from the new c, before its zoneout.",
        RATE,
    ),
    "groups": Argument(
        'over what a row\'s statistics are taken: "gate", over each gate by '
        'itself; "all", over all gates together; "paper", as the paper takes '
        "them, over the four gates of an LSTM together, and of a GRU over z "
        "and r together and the candidate by itself.",
        Kind(lambda name, value: check_groups(value)),
    ),
    "mask": Argument(
        "bool tensor (B, T), False where a row's step is left out: the states "
        "stay, and the output is the h that is carried. The sequences may hold "
        "anything there, NaN too.",
        place="call",
    ),
    "input_mask": Argument(
        "dropout mask of the inputs (B, D), scaled; a constant.", place="call"
    ),
    "recurrent_mask": Argument(
        "dropout mask of h (B, U) before the recurrent product, scaled; a "
        "constant.",
        place="call",
    ),
    "training": Argument(
        "",
        place="call",
        more={
            "call": "whether dropout and zoneout are in training mode.",
            "function": "whether a gradient is likely to be asked for, a hint "
            "for TensorFlow alone: what it needs is then kept, else a gradient "
            "runs the sequence again. JAX and torch know.",
        },
    ),
    "initial_state": Argument("{initial}; zeros without it.", place="call"),
    "return_all_outputs": Argument(
        "whether to return the outputs of every step.", FLAG, "call"
    ),
    "zero_output_for_mask": Argument(
        "whether the output is zero at steps left out.", FLAG, "call"
    ),
    "reset": Argument(
        "bool tensor (B, T), or zeros and ones, True at the first step, in "
        "time, of a new sequence: before it the row's states are replaced, "
        "also where the mask leaves the step out. With `go_backwards` they are "
        "replaced before the last step of every sequence.",
        place="call",
        more={
            "call": "A call that gives it uses the mask that the sequences "
            "carry.",
            "function": "bn_lstm refuses it.",
        },
    ),
    "reset_state": Argument(
        "what replaces them, one tensor (B, U) or (1, U) per state; zeros "
        "without it. Where there is no other initial state, the row starts "
        "from it too. No gradient passes a reset; this state has its own.",
        place="call",
    ),
}


def accept(name: str, value: Any) -> Any:
    """The argument as a layer keeps it; an error for a wrong value."""
    kind = ARGUMENTS[name].kind
    return value if kind is None else kind.check(name, value)


def serialize(name: str, value: Any) -> Any:
    """The argument as `get_config` gives it."""
    kind = ARGUMENTS[name].kind
    return value if kind is None else kind.serialize(value)


def describe(
    names: Iterable[str],
    tags: set[str],
    words: Mapping[str, str],
    beside: str = "",
) -> str:
    """The arguments as a docstring lists them.

    Args:
        names: of the arguments, in order.
        tags: which of `Argument.more` to add: "cell" for cells and their
            layers, "call" for a layer's call, "function" or "step".
        words: what stands in the places of the texts.
        beside: the docstring, which describes some of the arguments itself.
    """
    entries = []
    for name in names:
        if f"\n    {name}: " in beside:
            continue
        argument = ARGUMENTS[name]
        texts = [name + ":", argument.doc]
        for of, text in argument.more.items():
            if tags & {*of.split()}:
                texts.append(text)
        entries.append(
            textwrap.fill(
                " ".join(filter(None, texts)).format(**words),
                80,
                initial_indent=" " * 4,
                subsequent_indent=" " * 8,
                break_on_hyphens=False,
            )
        )
    return "\n".join(entries)
