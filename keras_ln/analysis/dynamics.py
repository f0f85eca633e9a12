"""Sizes of a recurrent layer's state and gradient over time, section 3.1.

Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), section 3.1.
Letters: B batch, T time, D input features, U units, S the sizes of all states
of a cell together.
"""

import itertools
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_ln.engine import arguments, dtypes, jacobian, scan


class HiddenDynamics(NamedTuple):
    """Sizes at every time step, NumPy float64 arrays (T).

    Attributes:
        state: root mean square of all states' entries after the step.
        summed_inputs: root mean square of the entries of `x_t W + h_{t-1} R`.
        gradient: root mean square over the batch of the norm of the gradient of
            `c . h_T` in the states after the step; c is a random unit vector.
    """

    state: np.ndarray
    summed_inputs: np.ndarray
    gradient: np.ndarray


def hidden_dynamics(layer: Any, x: Any, *, seed: int = 0) -> HiddenDynamics:
    """Measures state, summed inputs and gradient at every time step.

    With the states s_t (h_t, and c_t of an LSTM) from `s_0 = 0`:

        state_t         = sqrt(mean(s_t^2))
        summed_inputs_t = sqrt(mean((x_t W + h_{t-1} R)^2))
        gradient_t      = sqrt(mean_b(||d(c_b . h_T) / d s_t||^2))

    The summed inputs are taken before normalisation, without the bias. The
    vectors c_b (U) are random, one for every example and of length 1: the
    gradient at the last step is 1, and U times the squared gradient at step t
    estimates the squared norm of the Jacobian `dh_T / ds_t`. A plain RNN
    multiplies its hidden state by the same matrix at every step, so state or
    gradient grow or vanish with the scale of R; layer normalisation removes the
    scale of all summed inputs (section 3.1).

    Args:
        layer: a recurrent layer of keras_ln or Keras whose `cell` has a
            `kernel` and a `recurrent_kernel`; the function builds it if
            necessary. It runs without dropout.
        x: floating-point tensor (B, T, D). With `go_backwards=True` the last
            step comes first.
        seed: of the vectors c.

    Returns:
        `HiddenDynamics`.

    Raises:
        ValueError: if the layer has no such cell, or `x` is not a
            floating-point tensor of rank 3.
        TypeError: if `seed` is not an integer.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), section 3.1.

    >>> import keras_ln.layers.rnn.ln_simple_rnn as rnn
    >>> layer = rnn.LNSimpleRNN(8)
    >>> sizes = hidden_dynamics(layer, keras.random.normal((2, 20, 3)))
    >>> sizes.state.shape, float(sizes.gradient[-1].round(3))
    ((20,), 1.0)
    """
    rng = np.random.default_rng(arguments.check_integer("seed", seed))
    x = keras.ops.convert_to_tensor(x)
    arguments.check_floating("x", x.dtype)
    arguments.check_rank("x", x.shape, "batch, time, features")
    if isinstance(layer, keras.layers.Layer) and not layer.built:
        layer.build(tuple(x.shape))
    cell: Any = getattr(layer, "cell", None)
    if not hasattr(cell, "kernel") or not hasattr(cell, "recurrent_kernel"):
        raise ValueError(
            "Argument `layer` must be a recurrent layer whose `cell` has a "
            f"`kernel` and a `recurrent_kernel`. Received: {layer!r}"
        )
    x = keras.ops.cast(x, layer.compute_dtype)
    if getattr(layer, "go_backwards", False):
        x = keras.ops.flip(x, axis=1)
    batch, steps, _ = x.shape
    states = cell.get_initial_state(batch_size=batch)
    states = tuple(map(dtypes.widen, keras.tree.flatten(states)))
    # The last states of keras_ln's cells may be step counters: leave them out.
    sizes = keras.tree.flatten(cell.state_size)
    sizes = sizes[: len(sizes) - getattr(cell, "counters", 0)]
    ends = list(itertools.accumulate(sizes))

    def run(probe: Any) -> Any:
        """States (T, B, S) with `probe` (B, T, S) added after every step."""

        def step(carry: Any, row: Any) -> Any:
            before = [carry[str(k)] for k in range(len(states))]
            given = before if len(before) > 1 else before[0]
            _, new = cell(row["x"], given)
            new = [
                keras.ops.cast(value, old.dtype)
                for value, old in zip(
                    keras.tree.flatten(new), before, strict=True
                )
            ]
            for k, (size, end) in enumerate(zip(sizes, ends, strict=True)):
                new[k] = new[k] + row["probe"][:, end - size : end]
            shown = keras.ops.concatenate(new[: len(sizes)], axis=-1)
            return by_number(new), {"states": shown}

        rows = {
            name: keras.ops.swapaxes(rows, 0, 1)
            for name, rows in (("x", x), ("probe", probe))
        }
        return scan(step, by_number(states), rows)[1]["states"]

    def by_number(values: Any) -> dict[str, Any]:
        return {str(k): value for k, value in enumerate(values)}

    zeros = keras.ops.zeros((batch, steps, ends[-1]), dtype=states[0].dtype)
    c = rng.normal(size=(batch, sizes[0]))
    c = c / np.sqrt((c * c).sum(1, keepdims=True))
    c = keras.ops.convert_to_tensor(c, dtype=states[0].dtype)
    gradient = jacobian(
        lambda probe: keras.ops.sum(c * run(probe)[-1][:, : sizes[0]]), zeros
    )
    values = _to_numpy(run(zeros))
    return HiddenDynamics(
        state=_root_mean_square(values, (1, 2)),
        summed_inputs=_root_mean_square(
            _summed_inputs(cell, _to_numpy(x), values[:-1, :, : sizes[0]]),
            (0, 2),
        ),
        gradient=np.sqrt((_to_numpy(gradient) ** 2).sum(2).mean(0)),
    )


def _to_numpy(tensor: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(tensor), "float64")


def _root_mean_square(values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.sqrt((values * values).mean(axes))


def _summed_inputs(
    cell: Any,
    x: np.ndarray,  # (B, T, D)
    h: np.ndarray,  # (T - 1, B, U), from h_1
) -> np.ndarray:
    """`x_t W + h_{t-1} R` (B, T, nU)."""
    kernel, recurrent = cell.kernel, cell.recurrent_kernel
    if hasattr(cell, "tensors"):
        # Weight normalisation computes with kernels made from its weights.
        weights = cell.tensors()
        kernel, recurrent = weights["kernel"], weights["recurrent_kernel"]
    sums = x @ _to_numpy(kernel)
    sums[:, 1:] += h.swapaxes(0, 1) @ _to_numpy(recurrent)
    return sums
