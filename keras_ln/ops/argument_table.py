"""The arguments of layers, cells and functions: meaning and allowed values.

Each argument is described once, here. A layer and the function that it calls
use the same words; `more` has the remarks for only one of them.

Letters: B batch, T time, U units.
"""

import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import keras

from keras_ln.engine import arguments
from keras_ln.ops.norms.cell_norms import check_groups, check_sites


class Kind(NamedTuple):
    """The check of a value, and its form in a config."""

    # `check(name, value)` returns the value as a layer keeps it, or raises.
    check: Callable[[str, Any], Any]
    # Converts the kept value for `get_config`.
    serialize: Callable[[Any], Any] = lambda value: value


class Argument(NamedTuple):
    """An argument, with the same meaning in every signature."""

    # May hold placeholders for a cell's words, such as {states}.
    doc: str
    # None for arguments that may be tensors: the call checks them.
    kind: Kind | None = None
    # Who gets it from a sequence layer's constructor: the cell,
    # `keras.layers.RNN` ("keras") or the layer itself. Arguments of a layer's
    # call and of a function are "call".
    place: Literal["cell", "keras", "layer", "call"] = "cell"
    # Remarks for some of the owners, by the tags that `describe` gets, or by
    # the name of a cell without "Cell".
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
            f"Keras' GRU does by default. Received: {name}={value!r}. Leave it "
            "out and train again: those weights belong to another equation."
        )
    return True


ACTIVATION = _of_keras(keras.activations, "an activation")
INITIALIZER = _of_keras(keras.initializers, "an initializer")
REGULARIZER = _of_keras(keras.regularizers, "a regularizer")
CONSTRAINT = _of_keras(keras.constraints, "a constraint")
FLAG = Kind(arguments.check_flag)
NOT_NEGATIVE = Kind(arguments.check_not_negative)
RATE = Kind(arguments.check_rate)
SWITCH = Kind(arguments.check_switch)

ARGUMENTS = {
    "units": Argument(
        "U, the number of units, a positive integer.",
        Kind(arguments.check_positive_integer),
    ),
    "axis": Argument(
        "one axis or several, normalised together.",
        Kind(lambda name, value: arguments.check_axis_type(value)),
    ),
    "max_steps": Argument(
        "S, the number of steps with moving statistics of their own. None "
        "takes the number of steps of the inputs that the layer is built for.",
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
        "the function that the equations show as sigmoid, given like "
        "`activation`.",
        ACTIVATION,
    ),
    "use_bias": Argument(
        "add a `bias`.",
        FLAG,
        more={
            "LNGRU": "Without `recurrent_beta` the cell adds a "
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
            ("projection", "`projection_kernel`"),
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
    "unit_forget_bias": Argument("start the bias of f at 1.", FLAG),
    "activity_regularizer": Argument(
        "regularizer of the output.", REGULARIZER, "keras"
    ),
    "dropout": Argument(
        "fraction of the inputs to drop, in [0, 1). The gates share one mask "
        "per sequence.",
        RATE,
    ),
    "recurrent_dropout": Argument(
        "fraction of h to drop before the recurrent product, in [0, 1).", RATE
    ),
    "seed": Argument(
        "seed of dropout masks and of zoneout's choices. Bidirectional gives "
        "both directions the same integer, so they draw the same numbers.",
        _or_none(arguments.check_integer),
    ),
    "return_sequences": Argument(
        "return the outputs of all steps.", FLAG, "keras"
    ),
    "return_state": Argument("return the final {states} too.", FLAG, "keras"),
    "go_backwards": Argument(
        "process the last step first; outputs come in the order of processing.",
        *(FLAG, "keras"),
    ),
    "stateful": Argument(
        "start from the final states of the last call.", *(FLAG, "keras")
    ),
    "unroll": Argument(
        "unroll the loop over time; T must be known.", *(FLAG, "keras")
    ),
    "reset_after": Argument(
        "must be True, Keras' default: the reset gate applies after the "
        "product with `recurrent_kernel`.",
        Kind(_check_reset_after),
    ),
    "use_cudnn": Argument(
        "accepted, as by Keras' layers, and ignored.", *(SWITCH, "layer")
    ),
    "use_fused": Argument(
        '"auto" runs one op with a hand-written gradient if possible, True '
        "raises an error if not, False runs a loop that the framework "
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
            "29-31).",
            "LNGRU": '"sum", in place of both, is one normalisation of '
            "x W + h R over all 3U entries, with `sum_gamma` and `sum_beta` "
            "(3U); the reset gate then multiplies the whole candidate.",
        },
    ),
    "center": Argument("add {betas}.", FLAG),
    "scale": Argument("add a `gamma`.", FLAG),
    "epsilon": Argument(
        "finite number {least}, inside the square root.",
        NOT_NEGATIVE,
        more={
            "cell function step": "If a variance is zero up to rounding "
            "(`sqrt(variance) <= 16 u |mean|`, with the unit roundoff u of the "
            "computation's dtype), the constant 1 replaces "
            "`1 / sqrt(variance + epsilon)`. Otherwise every step of zeros "
            "from a zero state, such as padding, would multiply the gradient "
            "by `1 / sqrt(epsilon)`, 316 by default, for each normalisation. "
            "Moving variances are used as they are.",
            "LayerNormalization": "Keras' default is 1e-3, which shrinks small "
            "inputs; the authors' is 1e-5.",
        },
    ),
    "unbiased": Argument(
        "divide the training variance by n - 1 instead of n. With n = 1 (only "
        "one unmasked element) the variance is undefined: it raises an error "
        "if n is known when the graph is built, and is NaN otherwise.",
        FLAG,
    ),
    "sequence_wise": Argument(
        "share the statistics among all steps; `max_steps` is then not used.",
        FLAG,
    ),
    "carry_normalized_state": Argument(
        "pass LN(c') to the next step in place of c', as TensorFlow-Addons' "
        "LayerNormLSTMCell does; the paper passes c' (eq. 21-22). The site "
        '"state" must be normalised.',
        FLAG,
    ),
    "zoneout": Argument(
        "z, the probability that a unit keeps its h, in [0, 1). With h_new "
        "from the equations, training computes h' = m * h + (1 - m) * h_new, "
        "with m drawn for every row, step and unit, 1 with probability z and 0 "
        "otherwise; inference computes the expectation h' = z * h + (1 - z) * "
        'h_new (Krueger et al., "Zoneout", 2017).',
        RATE,
        more={
            "cell": "A cell with zoneout has one more state, (B, 1), which "
            "counts the steps. Inside another cell, or in your own loop, it "
            "repeats its choices until you call its `forget_dropout_masks`.",
            "function": "A number is z and gives the expectation; a bool "
            "tensor (B, T, U) is m.",
            "step": "A number is z and gives the expectation; a bool tensor "
            "(B, U) is m.",
        },
    ),
    "cell_zoneout": Argument(
        "like `zoneout`, for c, with separate choices. The step computes its h "
        "from the new c, before the zoneout of c.",
        RATE,
    ),
    "groups": Argument(
        "the gates that share a row's mean and variance. "
        '"gate": each gate separately. "all": all gates. "paper": as in the '
        "paper, all four gates of an LSTM, but only z and r of a GRU.",
        Kind(lambda name, value: check_groups(value)),
    ),
    "use_sum_bias": Argument(
        "add a `sum_bias` to x W + h R before the normalisation of the site "
        '"sum".',
        FLAG,
    ),
    "projection": Argument(
        "None, or P, the size of h, less than U. The h' of the equations is "
        "then m, and h' = m P_k with `projection_kernel` P_k (U, P). "
        "`recurrent_kernel` is (P, 4U), and h and outputs are (B, P). One op "
        "runs with P_k R, computed once a call. `zoneout`, "
        "`recurrent_dropout` in training, `reset_state`, and a mask with an "
        "initial state need the loop (Sak, Senior and Beaufays, 2014).",
        _or_none(arguments.check_positive_integer),
    ),
    "mask": Argument(
        "bool tensor (B, T), False at masked steps: they leave the row's "
        "states unchanged, and their output is the carried h. The sequences "
        "may hold anything at masked steps, NaN too.",
        place="call",
    ),
    "input_mask": Argument(
        "scaled dropout mask of the inputs (B, D), a constant.", place="call"
    ),
    "recurrent_mask": Argument(
        "scaled dropout mask of h (B, U) before the recurrent product, a "
        "constant.",
        place="call",
    ),
    "training": Argument(
        "",
        place="call",
        more={
            "call": "run dropout and zoneout in training mode.",
            "function": "keep the residuals that a gradient needs; without "
            "them a gradient runs the sequence again. Only TensorFlow uses "
            "this: JAX and torch know whether they differentiate.",
        },
    ),
    "initial_state": Argument("{initial}; zeros without it.", place="call"),
    "return_all_outputs": Argument(
        "return the outputs of all steps.", FLAG, "call"
    ),
    "zero_output_for_mask": Argument(
        "set the output to zero at masked steps.", FLAG, "call"
    ),
    "reset": Argument(
        "bool tensor (B, T), or zeros and ones, True at the first step, in "
        "time, of every new sequence. The row's states are replaced before "
        "that step, even if the step is masked. With `go_backwards` they are "
        "replaced before the last step of every sequence.",
        place="call",
        more={
            "call": "With `reset` and without `mask`, the call uses the mask "
            "that the sequences carry.",
            "function": "bn_lstm refuses it.",
        },
    ),
    "reset_state": Argument(
        "the states after a reset, one tensor (B, U) or (1, U) per state; "
        "zeros without it. Without another initial state, the rows start from "
        "it too. No gradient passes a reset; `reset_state` has its own "
        "gradient.",
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
        words: replacements for the texts' placeholders, by name.
        beside: the docstring, which may describe some of the arguments.
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
