"""The network for handwriting of a given text.

Graves, "Generating Sequences With Recurrent Neural Networks" (2013), sections
4.1 and 5; equation numbers are his. Letters: B batch, T points, C characters
of the longest text, S symbols of the alphabet, K Gaussians of the window, M
components of the mixture, U units. A point is (dx, dy, end of stroke).
"""

import math
from typing import Any

import keras
import numpy as np
from common import recurrent
from common.datasets.strokes import SYMBOLS
from keras import layers, ops

import keras_ln


def window_weights(alpha: Any, beta: Any, kappa: Any, length: int) -> Any:
    """The weights (B, length) of the characters 1, 2, ... (eq. 46).

    alpha, beta and kappa (B, K) are the importance of a Gaussian, its
    narrowness and its place in the text.
    """
    place = ops.arange(1, length + 1, dtype="float32")
    distance = kappa[:, :, None] - place  # (B, K, length)
    bells = ops.exp(-beta[:, :, None] * distance * distance)
    return ops.sum(alpha[:, :, None] * bells, axis=1)


class WindowCell(layers.Layer):
    """An LSTM with a window on the text, which is part of its next input.

    Its input is a point (B, 3), its output h and the window (B, U + S). Its
    states are h and c (B, U), kappa (B, K), the window (B, S) and the text
    (B, C, S), which does not change.
    """

    def __init__(
        self,
        norm: str,
        units: int,
        symbols: int,
        gaussians: int,
        pace: float,
        gain: float | None,
        forget_steps: int | None,
    ):
        super().__init__(dtype="float32")
        self.state_size = [units, units, gaussians, symbols, symbols]
        self.output_size = units + symbols
        self.lstm = recurrent.layer(
            keras_ln.LNLSTMCell, norm, units, gain, forget_steps
        )
        # The window starts at the mean pace of the writers.
        start = np.repeat(np.float32([0, 0, math.log(pace)]), gaussians)
        self.dense = layers.Dense(
            3 * gaussians,
            dtype="float32",
            bias_initializer=lambda *_, **__: ops.convert_to_tensor(start),
        )

    def build(self, input_shape):
        batch, features = input_shape
        units, *_, symbols = self.state_size
        self.lstm.build((batch, features + symbols))
        self.dense.build((batch, units))

    def call(self, point, states):
        h, c, kappa, window, text = states
        seen = ops.concatenate([point, window], axis=1)
        _, (h, c) = self.lstm(seen, [h, c])
        h, c = ops.cast(h, "float32"), ops.cast(c, "float32")
        alpha, beta, kappa = self.place(h, kappa)
        weights = window_weights(alpha, beta, kappa, text.shape[1])
        window = ops.squeeze(weights[:, None] @ text, axis=1)
        output = ops.concatenate([h, window], axis=1)
        return output, [h, c, kappa, window, text]

    def place(self, h, kappa):
        """alpha, beta and kappa, each (B, K), eq. 48 to 51."""
        alpha, beta, step = ops.split(ops.exp(self.dense(h)), 3, axis=1)
        return alpha, beta, kappa + step


@keras.saving.register_keras_serializable(package="keras_ln_examples")
class Window(layers.Layer):
    """`WindowCell` over points (B, T, 3) and symbols (B, C), from 1 on.

    The symbol 0 follows the end of a text.
    """

    def __init__(self, name=None, **config: Any):
        super().__init__(dtype="float32", name=name)
        self.config = config
        self.cell = WindowCell(**config)
        self.rnn = layers.RNN(self.cell, return_sequences=True, dtype="float32")

    def build(self, points_shape, symbols_shape):
        self.rnn.build(points_shape)

    def compute_output_shape(self, points_shape, symbols_shape):
        return *points_shape[:2], self.cell.output_size

    def call(self, points, symbols):
        batch = ops.shape(points)[0]
        zeros = [ops.zeros((batch, n)) for n in self.cell.state_size[:-1]]
        text = self.one_hot(symbols)
        return self.rnn(points, initial_state=[*zeros, text])

    def one_hot(self, symbols):
        """The text (B, C, S); rows after its end are zero."""
        count = self.config["symbols"] + 1
        return ops.one_hot(symbols, count, dtype="float32")[..., 1:]

    def get_config(self):
        return self.config | {"name": self.name}


@keras.saving.register_keras_serializable(package="keras_ln_examples")
def mixture_nll(points: Any, outputs: Any) -> Any:
    """-log density of points (B, T, 3) in nats, (B, T), eq. 23 to 26.

    The network's outputs (B, T, 1 + 6 M) are the logit of the end, then for all
    M components logits of the weights, means of dx and of dy, logarithms of
    their deviations, and the inputs of the tanh that gives correlations.
    """
    end, *parts = _split(outputs)
    logits, mean_x, mean_y, log_x, log_y, raw = parts
    x, y = points[..., 0:1] - mean_x, points[..., 1:2] - mean_y
    x, y = x * ops.exp(-log_x), y * ops.exp(-log_y)
    # log(1 - tanh(r)^2) = -2 log cosh(r), without the cancellation.
    size = ops.abs(raw)
    log_cosh = size + ops.softplus(-2 * size) - math.log(2)
    z = (x * x + y * y - 2 * ops.tanh(raw) * x * y) * ops.exp(2 * log_cosh)
    log_normal = log_cosh - log_x - log_y - z / 2 - math.log(2 * math.pi)
    log_weights = ops.log_softmax(logits, axis=-1)
    offsets = ops.logsumexp(log_weights + log_normal, axis=-1)
    return ops.softplus(end) - end * points[..., 2] - offsets


@keras.saving.register_keras_serializable("keras_ln_examples", "_MixtureNLL")
class MixtureNLL(keras.losses.Loss):
    """`mixture_nll` as a loss."""

    def call(self, points, outputs):
        return mixture_nll(points, outputs)


def _split(outputs):
    components = (outputs.shape[-1] - 1) // 6
    parts = [
        outputs[..., 1 + i * components : 1 + (i + 1) * components]
        for i in range(6)
    ]
    return outputs[..., 0], *parts


def sample_point(
    outputs: np.ndarray, bias: float, random: np.random.Generator
) -> np.ndarray:
    """Draws one point (3) from outputs (1 + 6 M); eq. 61 and 62 bias it."""
    end, logits, *parts = _split(np.float64(outputs))
    logits = logits * (1 + bias)
    weights = np.exp(logits - logits.max())
    component = random.choice(len(weights), p=weights / weights.sum())
    mean_x, mean_y, log_x, log_y, raw = (part[component] for part in parts)
    one, two = random.normal(size=2)
    rho = np.tanh(raw)
    two = rho * one + np.sqrt(1 - rho * rho) * two
    x = mean_x + np.exp(log_x - bias) * one
    y = mean_y + np.exp(log_y - bias) * two
    return np.array([x, y, random.random() < 1 / (1 + np.exp(-end))])


def write(
    model: keras.Model,
    symbols: np.ndarray,
    length: int,
    bias: float,
    random: np.random.Generator,
) -> list[np.ndarray]:
    """Lets a trained model write texts (B, C), 0 after their ends.

    Returns:
        Points (n, 3) per text, at most `length`. A text ends when the window
        has passed its last character (section 5.4).
    """
    window = model.get_layer("window")
    cells = [model.get_layer(name).cell for name in ("lstm_2", "lstm_3")]
    density = model.get_layer("density")
    count = len(symbols)
    sizes = window.cell.state_size[:4] + 4 * [cells[0].units]
    states = [np.zeros((count, size), "float32") for size in sizes]
    text = ops.convert_to_numpy(window.one_hot(symbols))
    ends = np.count_nonzero(symbols, axis=1)
    point = np.zeros((count, 3), "float32")
    written: list[list[np.ndarray]] = [[] for _ in symbols]
    done = np.zeros(count, bool)
    for _ in range(length):
        # Not `predict`, which would distribute the texts over the devices.
        found = _step(window.cell, cells, density, point, text, *states)
        outputs, weights, *states = map(ops.convert_to_numpy, found)
        for row in np.flatnonzero(~done):
            point[row] = sample_point(outputs[row], bias, random)
            written[row].append(point[row].copy())
            # Past the end: the window is furthest from all characters.
            done[row] = weights[row, : ends[row] + 1].argmax() == ends[row]
        if done.all():
            break
    return [np.array(points) for points in written]


def _step(window, cells, density, *inputs: np.ndarray) -> list:
    """One step: the density's parameters, window's weights, and new states.

    `inputs` are the last point (B, 3), one-hot characters (B, C, S), the
    window's states (4) and the other cells' h and c.
    """
    point, text, *states = map(ops.convert_to_tensor, inputs)
    _, new = window(point, [*states[:4], text])
    h, window_seen = new[0], new[3]
    alpha, beta, kappa = window.place(h, states[2])
    weights = window_weights(alpha, beta, kappa, text.shape[1] + 1)
    outputs, new = [h], new[:4]
    for k, cell in enumerate(cells):
        x = ops.concatenate([point, outputs[-1], window_seen], axis=1)
        y, own = cell(x, states[4 + 2 * k : 6 + 2 * k])
        outputs.append(y)
        new += own
    top = ops.concatenate(outputs, axis=1)
    return [density(top), weights, *new]


def build_model(
    norm: str = "layer",
    units: int = 400,
    steps: int = 500,
    characters: int = 64,
    symbols: int = SYMBOLS,
    gaussians: int = 10,
    components: int = 20,
    pace: float = 0.04,
    gain: float | None = None,
    forget_steps: int | None = None,
) -> keras.Model:
    """Builds the network from points and symbols to a density's parameters.

    Args besides the flags of `handwriting_generation.py`:
        steps: the number of points of a line.
        characters: the length of the longest text.
        symbols: the size of the alphabet.
        gaussians: the number of Gaussians of the window.
        components: the number of components of the mixture.
        pace: characters per point at which the window starts to move.
    """
    points = keras.Input((steps, 3), name="points")
    text = keras.Input((characters,), dtype="int32", name="symbols")
    window = Window(
        **{"norm": norm, "units": units, "symbols": symbols, "pace": pace},
        **{"gaussians": gaussians, "gain": gain, "forget_steps": forget_steps},
        name="window",
    )
    seen = window(points, text)
    outputs, window_seen = [seen[..., :units]], seen[..., units:]
    for name in ("lstm_2", "lstm_3"):
        layer = recurrent.layer(
            *(keras_ln.LNLSTM, norm, units, gain, forget_steps),
            return_sequences=True,
            name=name,
        )
        x = ops.concatenate([points, outputs[-1], window_seen], axis=-1)
        outputs.append(layer(x))
    x = ops.concatenate(outputs, axis=-1)
    density = layers.Dense(1 + 6 * components, dtype="float32", name="density")
    return keras.Model([points, text], density(x))
