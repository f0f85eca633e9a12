"""What the docstrings of recurrent cells and layers share.

A docstring says where: in the place of `{arguments}`, `{call}`, `{returns}`.
"""

import inspect
import re
from typing import Any, TypeVar

from keras_ln.layers.constructor_arguments import argument_names

_T = TypeVar("_T", bound=type)

# Arguments of cells. An argument that one cell alone has, or means in another
# way, is described in its docstring.
_CELL = """
    units: U, the size of {states}, an integer >= 1.
    activation: of the candidate c~, and of c' in the equation of h'.
    recurrent_activation: of the gates i, f and o.
    use_bias: whether there is a `bias`.
    kernel_initializer: initializer of `kernel`.
    recurrent_initializer: initializer of `recurrent_kernel`.
    bias_initializer: initializer of `bias`.
    unit_forget_bias: whether the bias of f starts at 1.
    kernel_regularizer: regularizer of `kernel`.
    recurrent_regularizer: regularizer of `recurrent_kernel`.
    bias_regularizer: regularizer of `bias`.
    kernel_constraint: constraint of `kernel`.
    recurrent_constraint: constraint of `recurrent_kernel`.
    bias_constraint: constraint of `bias`.
    dropout: fraction of the inputs to drop, in [0, 1). One mask per
        sequence, shared by the gates.
    recurrent_dropout: fraction of h to drop before the recurrent product.
    seed: seed of dropout masks and of zoneout's choices. Bidirectional hands
        the same integer to both directions, which then draw the same.
    epsilon: finite number > 0, inside the square root: the first h is zero, and
        so is its variance. Where a variance is zero up to rounding,
        `1 / sqrt(variance + epsilon)` is replaced by 1: every step of zeros
        from a state of zero, such as padding, would otherwise multiply the
        gradient by `1 / sqrt(epsilon)`, 316, for each normalisation.
    gamma_initializer: initializer of every gamma.
    beta_initializer: initializer of every beta.
    gamma_regularizer: regularizer of every gamma.
    beta_regularizer: regularizer of every beta.
    gamma_constraint: constraint of every gamma.
    beta_constraint: constraint of every beta.
    zoneout: z, the probability that a unit keeps its h, in [0, 1). Where the
        equations give h_new, training has h' = m * h + (1 - m) * h_new, with m
        drawn for every row, step and unit, 1 with probability z and else 0;
        inference has the expectation h' = z * h + (1 - z) * h_new (Krueger et
        al., "Zoneout", 2017). A cell then has one more state, (B, 1), which
        counts the steps; inside another cell, or in a loop of your own, it
        repeats its choices until you call its `forget_dropout_masks`.
    cell_zoneout: the same for c, with its own random choices. The h of the
        step is computed from the new c, before its zoneout.
    **kwargs: arguments of `keras.layers.Layer`, such as `name`, `dtype`.
"""
_CELL_CALL = """\
Call arguments:
    inputs: tensor (B, D); integers are cast to floating point.
    states: {given}.
    training: whether dropout and zoneout are in training mode."""
_CELL_RETURNS = """\
Returns:
    {returned}

Raises:
    ValueError: for a wrong argument, named in the message; when built,
        for inputs of another rank than 2 or of unknown size; when called,
        for complex inputs, and for states that are not floating point or
        of another number or shape."""
# What a layer adds to the arguments of its cell.
_LAYER = """
    activity_regularizer: regularizer of the output.
    return_sequences: whether to return the outputs of all steps.
    return_state: whether to return the final {states} too.
    go_backwards: whether to process the last step first; outputs come in
        the order of processing.
    stateful: whether to start from the final states of the last call.
    unroll: whether to unroll the loop over time; T must be known.
    use_cudnn: accepted and ignored, as an argument of Keras' layers.
    use_fused: "auto" runs one op per sequence where it can, True raises
        where it cannot, False runs the cell loop.
    **kwargs: `implementation`, which is ignored, `zero_output_for_mask`,
        and the arguments of `keras.layers.Layer`, such as `name`, `dtype`.
"""
_LAYER_CALL = """\
Call arguments:
    sequences: tensor (B, T, D); integers are cast to floating point.
    mask: bool tensor (B, T), False where a row's step is left out. The
        sequences may hold anything there, NaN too.
    training: whether dropout and zoneout are in training mode.
    initial_state: {initial}; zeros without it.
    reset: bool tensor (B, T), or zeros and ones, True at the first step, in
        time, of a new sequence: before it the row's states are replaced, also
        where the mask leaves the step out. With `go_backwards` they are
        replaced before the last step of every sequence. A call that gives it
        uses the mask that the sequences carry.
    reset_state: what replaces them, {initial}, or one row (1, U) for all;
        zeros without it. Where there is no other initial state, the row starts
        from it too. No gradient passes a reset; this state has its own."""
_LAYER_RETURNS = """\
Returns:
    With `return_sequences` the outputs (B, T, U), otherwise the last one
    (B, U); with `return_state` followed by the final {states} (B, U).

Raises:
    ValueError: for a wrong argument, named in the message; when called,
        for sequences that are complex, not of rank 3 or of
        another feature size than before, and for initial states of
        another number or shape."""
# By the number of states.
_WORDS = {
    1: {
        "states": "h",
        "initial": "a tensor (B, U)",
        "given": "h (B, U), or a list of it",
        "returned": "h' (B, U) twice, the second time in a list if it came in "
        "one, in the\n    layer's compute dtype.",
    },
    2: {
        "states": "h and c",
        "initial": "`[h, c]`, tensors (B, U)",
        "given": "`[h, c]`, tensors (B, U)",
        "returned": "h' (B, U) and `[h', c']`, in the layer's compute dtype.",
    },
}
_ENTRY = re.compile(r"^    (?:\*\*)?(\w+): .*(?:\n     .*)*", re.MULTILINE)


def documented(owner: _T) -> _T:
    """A decorator of cells and layers that completes their docstring.

    `{arguments}` becomes the arguments of the constructor that the docstring
    does not describe itself, `{call}` what a call takes, returns and raises,
    `{returns}` the last two alone.
    """
    # There are no docstrings under `python -OO`.
    if not (text := inspect.getdoc(owner)):
        return owner
    cell: Any = getattr(owner, "cell_class", owner)
    words = _WORDS[cell.equations.states]
    if cell is owner:
        known = _entries(_CELL)
        call, returns = _CELL_CALL, _CELL_RETURNS
    else:
        known = _entries(cell.__doc__ or "") | _entries(_LAYER)
        call, returns = _LAYER_CALL, _LAYER_RETURNS
    described = _entries(text)
    names = [n for n in argument_names(owner) if n not in described]
    parts = {
        "arguments": "\n".join(known[name] for name in names).lstrip(),
        "call": f"{call}\n\n{returns}",
        "returns": returns,
    }
    owner.__doc__ = text.format(**parts).format(**words)
    return owner


def _entries(text: str) -> dict[str, str]:
    return {match[1]: match[0] for match in _ENTRY.finditer(text)}
