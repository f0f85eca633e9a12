"""The layer-normalised simple RNN: cell and sequence layer."""

from typing import Any

import keras

from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.base_rnn import BaseRNN, of_cell
from keras_ln.layers.rnn.cell_arguments import own_arguments
from keras_ln.layers.rnn.docstrings import lists_arguments_of
from keras_ln.layers.types import Identifier, Switch
from keras_ln.ops.cells.simple_rnn import LN_SIMPLE_RNN


@keras.saving.register_keras_serializable(package="keras_ln")
class LNSimpleRNNCell(BaseCell):
    """One step of the layer-normalised simple RNN.

    One normalisation over the sum, with the statistics of one example:

        a  = x W + h R + bias
        h' = f(gamma * (a - mean(a)) / sqrt(var(a) + epsilon) + beta)

    | weight             | shape  | initial value  |
    |--------------------|--------|----------------|
    | `kernel`           | (D, U) | glorot uniform |
    | `recurrent_kernel` | (U, U) | orthogonal     |
    | `bias`             | (U,)   | 0              |
    | `gamma`            | (U,)   | 1              |
    | `beta`             | (U,)   | 0              |

    `beta` is the paper's b; there is a `bias` with `use_bias` only. In mixed
    precision the statistics and all sums are float32.

    A row without variance is not scaled: `1 / sqrt(var(a) + epsilon)` is 1
    where the variance is zero up to rounding. So steps of zeros from a state
    of zero, such as padding, do not multiply the gradient by 316.

    Args:
        units: U, the size of h, an integer >= 1.
        activation: f, of the normalised sum.
        use_bias: whether a `bias` is added before the normalisation.
        kernel_initializer: initializer of `kernel`.
        recurrent_initializer: initializer of `recurrent_kernel`.
        bias_initializer: initializer of `bias`.
        kernel_regularizer: regularizer of `kernel`.
        recurrent_regularizer: regularizer of `recurrent_kernel`.
        bias_regularizer: regularizer of `bias`.
        kernel_constraint: constraint of `kernel`.
        recurrent_constraint: constraint of `recurrent_kernel`.
        bias_constraint: constraint of `bias`.
        dropout: share of the inputs to drop, in [0, 1). One mask per
            sequence.
        recurrent_dropout: share of h to drop on its way into the sum.
        seed: seed of the dropout masks.
        epsilon: finite number > 0, inside the square root.
        gamma_initializer: initializer of gamma.
        beta_initializer: initializer of beta.
        gamma_regularizer: regularizer of gamma.
        beta_regularizer: regularizer of beta.
        gamma_constraint: constraint of gamma.
        beta_constraint: constraint of beta.
        **kwargs: arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: tensor (B, D); integers are cast to floating point.
        states: h (B, U), or a list of it.
        training: whether dropout is on.

    Returns h' (B, U) twice, the second time in a list if it came in one, in
    the layer's compute dtype.

    Raises:
        ValueError: for a wrong argument, named in the message; when built,
            for inputs of another rank than 2 or of unknown size; when called,
            for complex inputs, and for states that are not floating point or
            of another number or shape.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 4.

    >>> import keras
    >>> cell = LNSimpleRNNCell(4)
    >>> h, _ = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> tuple(h.shape)
    (2, 4)
    """

    maths = LN_SIMPLE_RNN
    weight_names = ("kernel", "recurrent_kernel", "bias", "gamma", "beta")

    def __init__(
        self,
        units: int,
        activation: Identifier = "tanh",
        use_bias: bool = False,
        kernel_initializer: Identifier = "glorot_uniform",
        recurrent_initializer: Identifier = "orthogonal",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        recurrent_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        recurrent_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        epsilon: float = 1e-5,
        gamma_initializer: Identifier = "ones",
        beta_initializer: Identifier = "zeros",
        gamma_regularizer: Identifier = None,
        beta_regularizer: Identifier = None,
        gamma_constraint: Identifier = None,
        beta_constraint: Identifier = None,
        **kwargs: Any,
    ) -> None:
        """Takes the arguments that the class lists."""
        super().__init__(own_arguments(locals()), **kwargs)

    def site_sizes(self) -> dict[str, int]:
        """The sizes of gamma and beta."""
        return {"gamma": self.units, "beta": self.units}


@keras.saving.register_keras_serializable(package="keras_ln")
@lists_arguments_of(LNSimpleRNNCell)
class LNSimpleRNN(BaseRNN):
    """Layer-normalised simple RNN over a sequence.

    Equation and weights are those of `LNSimpleRNNCell`, run over
    axis 1 of the input. At a masked step the states stay, and the output is
    the h that is carried: before the first valid step the initial h.

    The arguments of `keras.layers.SimpleRNN` have the names and places that
    they have there.

    Args:
        activity_regularizer: regularizer of the output.
        return_sequences: whether to return the outputs of all steps.
        return_state: whether to return the final h too.
        go_backwards: whether to visit the last step first; outputs come in
            the order of the visits.
        stateful: whether to start from the final states of the last call.
        unroll: whether to write the steps out; T must be known.
        use_fused: "auto" runs one op per sequence where it can, True raises
            where it cannot, False runs the cell loop.
        **kwargs: `implementation`, which is ignored, `zero_output_for_mask`,
            and the arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        sequences: tensor (B, T, D); integers are cast to floating point.
        mask: bool tensor (B, T), False where a row's step is left out.
        training: whether dropout is on.
        initial_state: a tensor (B, U); zeros without it.

    Returns (B, T, U) with `return_sequences`, else the last output (B, U);
    with `return_state` followed by the final h (B, U).

    Raises:
        ValueError: for a wrong argument, named in the message; when called,
            for sequences that are complex, not of rank 3 or of
            another feature size than before, and for initial states of
            another number or shape.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 4.

    >>> import keras
    >>> layer = LNSimpleRNN(4, return_sequences=True)
    >>> tuple(layer(keras.ops.ones((2, 7, 3))).shape)
    (2, 7, 4)
    """

    cell_class = LNSimpleRNNCell
    cell_name = "ln_simple_rnn_cell"

    def __init__(
        self,
        units: int,
        activation: Identifier = "tanh",
        use_bias: bool = False,
        kernel_initializer: Identifier = "glorot_uniform",
        recurrent_initializer: Identifier = "orthogonal",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        recurrent_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        recurrent_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        seed: int | None = None,
        epsilon: float = 1e-5,
        gamma_initializer: Identifier = "ones",
        beta_initializer: Identifier = "zeros",
        gamma_regularizer: Identifier = None,
        beta_regularizer: Identifier = None,
        gamma_constraint: Identifier = None,
        beta_constraint: Identifier = None,
        use_fused: Switch = "auto",
        **kwargs: Any,
    ) -> None:
        """Takes the arguments that the class lists."""
        super().__init__(own_arguments(locals()), **kwargs)

    epsilon = of_cell("epsilon")
    gamma_initializer = of_cell("gamma_initializer")
    beta_initializer = of_cell("beta_initializer")
    gamma_regularizer = of_cell("gamma_regularizer")
    beta_regularizer = of_cell("beta_regularizer")
    gamma_constraint = of_cell("gamma_constraint")
    beta_constraint = of_cell("beta_constraint")
