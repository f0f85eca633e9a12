"""The layer-normalised LSTM (Ba, Kiros and Hinton 2016, eq. 20-22).

Letters: B batch, T time, D input features, U units. `weights` maps names to
tensors; a site is normalised where its gamma is there, so that without any
this is the plain LSTM.
"""

from typing import Any

from keras_ln.ops import recurrence
from keras_ln.ops.cell import Cell, layer_norms
from keras_ln.ops.lstm import lstm_step, lstm_step_vjp
from keras_ln.ops.sequence_arguments import check_sequence
from keras_ln.ops.symbolic import takes_symbolic_tensors

# Vectors that there can be, and their sizes in multiples of U.
VECTORS = {
    "bias": 4,
    "kernel_gamma": 4,
    "kernel_beta": 4,
    "recurrent_gamma": 4,
    "recurrent_beta": 4,
    "state_gamma": 1,
    "state_beta": 1,
}

LN_LSTM = Cell(lstm_step, lstm_step_vjp, layer_norms)


@takes_symbolic_tensors
def ln_lstm(
    sequences: Any,
    initial_states: Any,
    weights: dict[str, Any],
    *,
    activation: Any = "tanh",
    recurrent_activation: Any = "sigmoid",
    epsilon: float = 1e-5,
    carry_normalized_state: bool = False,
    mask: Any = None,
    input_mask: Any = None,
    recurrent_mask: Any = None,
    go_backwards: bool = False,
    return_all_outputs: bool = True,
    training: bool = True,
) -> tuple[Any, Any, tuple[Any, Any]]:
    """Runs a layer-normalised LSTM over sequences, as one compiled op.

    With `LN(z; g, b) = g * (z - mean(z)) / sqrt(var(z) + epsilon) + b`, the
    statistics of one row over the whole vector, 4U long where it holds the
    four gates:

        [i f c~ o] = LN(h R; recurrent_gamma, recurrent_beta)
                   + LN(x W; kernel_gamma, kernel_beta) + bias
        c' = sigmoid(f) * c + sigmoid(i) * tanh(c~)
        h' = sigmoid(o) * tanh(LN(c'; state_gamma, state_beta))

    A row without variance is not scaled: where the variance is zero up to
    rounding, `sqrt(var(z)) <= 16 u |mean(z)|` with u the unit roundoff of the
    dtype that is computed in, `1 / sqrt(var(z) + epsilon)` is 1, a constant.

    At a step that the mask leaves out, the states stay and the output is the
    h that is carried. The gradients of sequences, states and weights are
    hand-written.

    Args:
        sequences: floating-point tensor (B, T, D).
        initial_states: h and c, tensors (B, U); None for zeros.
        weights: kernel (D, 4U), recurrent_kernel (U, 4U), and any of bias,
            kernel_gamma, kernel_beta, recurrent_gamma, recurrent_beta (4U),
            state_gamma and state_beta (U). Columns stand in the order i, f,
            c, o. The kernels are cast to the dtype of the sequences.
        activation: of the candidate c~ and of the c that h sees: one of
            "linear", "relu", "sigmoid", "tanh".
        recurrent_activation: of the gates i, f and o, likewise.
        epsilon: finite number > 0, inside the square root.
        carry_normalized_state: whether the next step gets LN(c') in place of
            c', as in TensorFlow-Addons; needs state_gamma.
        mask: bool tensor (B, T), False where a row's step is left out.
        input_mask: dropout mask of the inputs (B, D), scaled; a constant.
        recurrent_mask: dropout mask of h (B, U), scaled; a constant.
        go_backwards: visit the last step first; outputs come in the order of
            the visits.
        return_all_outputs: whether to return the outputs of every step.
        training: whether a gradient is likely to be asked for. What it needs
            is then kept; else a gradient runs the sequence again.

    Returns:
        `(last_output, outputs, final_states)`: h after the last step (B, U),
        h after each step (B, T, U), or without `return_all_outputs` the last
        one (B, 1, U), both in the dtype of the sequences; and h and c (B, U)
        in the dtypes of the initial states. All between is computed in at
        least float32.

    Raises:
        ValueError: for a wrong dtype, shape, weight name, activation or
            epsilon, named in the message; for carry_normalized_state
            without state_gamma.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 20-22.

    >>> import keras
    >>> ones = keras.ops.ones
    >>> weights = {
    ...     "kernel": ones((3, 16)),
    ...     "recurrent_kernel": ones((4, 16)),
    ...     "kernel_gamma": ones(16),
    ... }
    >>> last_output, outputs, (h, c) = ln_lstm(ones((2, 7, 3)), None, weights)
    >>> tuple(outputs.shape), tuple(c.shape)
    ((2, 7, 4), (2, 4))
    """
    sequences, states, weights, settings = check_sequence(
        sequences,
        initial_states,
        weights,
        vectors=VECTORS,
        gates=4,
        states=2,
        epsilon=epsilon,
        activation=activation,
        recurrent_activation=recurrent_activation,
    )
    if carry_normalized_state and "state_gamma" not in weights:
        raise ValueError(
            "carry_normalized_state=True needs the weight state_gamma: without "
            "it c is not normalised. Received: weights with "
            f"{', '.join(weights)}."
        )
    return recurrence.run(
        LN_LSTM,
        sequences,
        states,
        weights,
        settings._replace(carry_normalized_state=bool(carry_normalized_state)),
        mask=mask,
        input_mask=input_mask,
        recurrent_mask=recurrent_mask,
        go_backwards=go_backwards,
        return_all_outputs=return_all_outputs,
        training=training,
    )[:3]
