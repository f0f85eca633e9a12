"""Loaded weights against ports of cells whose packages no longer install.

Each port is written from the cell's equations, in its own order of gates.
"""

import functools

import keras
import numpy as np
import pytest
from backend_gradients import value_and_gradients
from compat.loaders import D, G, U, loader
from descriptors import named_weights
from reference import gradients
from refusals import refused
from tolerances import FLOAT64

import keras_ln
from keras_ln import compat

B, T, P = 3, 4, 2
# Of values and of gradients, which are relative to the largest.
TOLERANCES = {
    "float64": (FLOAT64, FLOAT64),
    "float32": ({"rtol": 0, "atol": 1e-6}, {"rtol": 0, "atol": 1e-5}),
}
SCOPES = ("input", "transform", "forget", "output", "state")


def sigmoid(x):
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def normalized(z, gamma, beta=0.0, epsilon=1e-12):
    mean = z.mean(axis=1, keepdims=True)
    variance = ((z - mean) ** 2).mean(axis=1, keepdims=True)
    return gamma * (z - mean) / np.sqrt(variance + epsilon) + beta


def tensorflow_1(weights, x, forget_bias):
    """tf.contrib.rnn.LayerNormBasicLSTMCell over x (B, T, D)."""
    h, c, outputs = np.zeros((B, U)), np.zeros((B, U)), []
    for t in range(T):
        z = np.concatenate([x[:, t], h], axis=1) @ weights["kernel"]
        i, j, f, o = (
            normalized(
                part, weights[f"{scope}/gamma"], weights[f"{scope}/beta"]
            )
            for part, scope in zip(np.split(z, 4, axis=1), SCOPES, strict=False)
        )
        c = c * sigmoid(f + forget_bias) + sigmoid(i) * np.tanh(j)
        c = normalized(c, weights["state/gamma"], weights["state/beta"])
        h = np.tanh(c) * sigmoid(o)
        outputs.append(h)
    return np.stack(outputs, axis=1)


def fastrnns(weights, x):
    """LayerNormLSTM of torch's benchmarks/fastrnns over x (B, T, D)."""
    h, c, outputs = np.zeros((B, U)), np.zeros((B, U)), []
    w = weights.get

    def site(letter, z):
        gamma, beta = (w(f"layernorm_{letter}.{k}") for k in ("weight", "bias"))
        return normalized(z, gamma, beta, epsilon=1e-5)

    for t in range(T):
        # The first h is zero: a row without variance is not scaled.
        from_h = site("h", h @ w("weight_hh").T) if t else w("layernorm_h.bias")
        z = site("i", x[:, t] @ w("weight_ih").T) + from_h
        i, f, g, o = np.split(z, 4, axis=1)
        c = site("c", sigmoid(f) * c + sigmoid(i) * np.tanh(g))
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs, axis=1)


def one_sum(weights, x, names, gates, epsilon, bias=0.0):
    """An LSTM that normalises x W + h R + bias in as many parts as names."""
    w = weights.get
    h, c = np.zeros((B, w(names[1]).shape[1])), np.zeros((B, U))
    outputs = []

    def site(name, z):
        gamma, beta = w(f"{name}.weight"), w(f"{name}.bias")
        return normalized(z, gamma, beta, epsilon)

    for t in range(T):
        z = x[:, t] @ w(names[0]).T + h @ w(names[1]).T + bias
        parts = np.split(z, len(gates) - 1, axis=1)
        z = [site(n, part) for n, part in zip(gates, parts, strict=False)]
        i, f, g, o = np.split(np.concatenate(z, axis=1), 4, axis=1)
        c = site(gates[-1], sigmoid(f) * c + sigmoid(i) * np.tanh(g))
        h = sigmoid(o) * np.tanh(c)
        if "weight_hr" in weights:
            h = h @ w("weight_hr").T
        outputs.append(h)
    return np.stack(outputs, axis=1)


def torchaudio(weights, x):
    """_CustomLSTM of torchaudio/models/rnnt.py, whose epsilon is 1e-3."""
    names = ("x2g.weight", "p2g.weight")
    return one_sum(weights, x, names, ("g_norm", "c_norm"), 1e-3)


def icefall(weights, x):
    """LayerNormLSTM of icefall's transducer/rnn.py."""
    gates = [f"layernorm_{gate}" for gate in ("i", "f", "cx", "o", "cy")]
    bias = weights.get("bias_ih", 0.0) + weights.get("bias_hh", 0.0)
    return one_sum(weights, x, ("weight_ih", "weight_hh"), gates, 1e-5, bias)


def dreamer(weights, x, names, x_first, constant=-1.0):
    """GRUCell of Dreamer v2, and v3 of 2023, over x (B, T, D)."""
    kernel, bias, gamma, beta = map(weights.get, names.split())
    kernel = kernel.T if "." in names else kernel
    h, outputs = np.zeros((B, U)), []
    for t in range(T):
        both = [x[:, t], h] if x_first else [h, x[:, t]]
        z = np.concatenate(both, axis=1) @ kernel
        z = normalized(z if bias is None else z + bias, gamma, beta, 1e-3)
        reset, cand, update = np.split(z, 3, axis=1)
        cand = np.tanh(sigmoid(reset) * cand)
        update = sigmoid(update + constant)
        h = update * cand + (1 - update) * h
        outputs.append(h)
    return np.stack(outputs, axis=1)


def drawn(shapes):
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def check(make, load, port, weights):
    """Values and gradients, in float64 and in float32.

    The port's gradients are loaded like the weights, whose layout they have.
    """
    rng = np.random.default_rng(1)
    x = rng.normal(size=(B, T, D))
    cotangent = rng.normal(size=port(weights, x).shape)
    wanted = gradients.complex_step(
        lambda arrays: gradients.inner(
            [port(arrays, arrays["x"])], [cotangent]
        ),
        {"x": x, **weights},
    )
    of_x = wanted.pop("x")
    moved = {"x": of_x, **named_weights(load(make(dtype="float64"), wanted))}
    for dtype, (of_values, of_gradients) in TOLERANCES.items():
        layer = load(make(return_sequences=True, dtype=dtype), weights)
        result = value_and_gradients(layer, x.astype(dtype), [cotangent])
        y = port(weights, x)
        np.testing.assert_allclose(result.outputs[0], y, **of_values)
        assert set(result.gradients) == set(moved)
        for name, gradient in moved.items():
            found, size = result.gradients[name], abs(gradient).max()
            np.testing.assert_allclose(
                found / size, gradient / size, err_msg=name, **of_gradients
            )


@pytest.mark.parametrize("forget_bias", [1.0, 0.0])
def test_tensorflow_1(forget_bias):
    _, make, shapes = loader("tf1_lstm")
    weights = drawn(shapes)

    def load(layer, arrays):
        named = {f"rnn/lstm_cell/{name}": w for name, w in arrays.items()}
        # A gradient has no constant in it.
        constant = forget_bias if arrays is weights else 0.0
        given = [] if constant == 1.0 else [constant]  # the default
        return compat.load_tf1_lstm(layer, named, *given)

    check(make, load, lambda w, x: tensorflow_1(w, x, forget_bias), weights)


@pytest.mark.parametrize("port", [fastrnns, torchaudio])
def test_one_layer(port):
    load, make, shapes = loader(f"{port.__name__}_lstm")
    check(make, load, port, drawn(shapes))


@pytest.mark.parametrize("biases", [True, False])
def test_icefall(biases):
    """With biases or with a projection."""
    _, make, shapes = loader("icefall_lstm")
    if not biases:
        make = functools.partial(
            keras_ln.LNLSTM, **compat.icefall_lstm_arguments(U, False, P)
        )
        shapes = {n: s for n, s in shapes.items() if n[:5] != "bias_"}
        shapes |= {"weight_hh": (G, P), "weight_hr": (P, U)}
    weights = drawn(shapes)

    def load(layer, arrays):
        if biases and arrays is not weights:  # Each has the sum's gradient.
            arrays = arrays | {"bias_hh": np.zeros(G)}
        return compat.load_icefall_lstm(layer, arrays)

    check(make, load, icefall, weights)


# The names of Dreamer's weights, and whether the rows of x are first.
DREAMERS = [
    ("dense/kernel:0 dense/bias:0 norm/gamma:0 norm/beta:0", True),
    ("gru/kernel - gru/norm/scale gru/norm/bias", False),
    ("layers.GRU_linear.weight - x.GRU_norm.weight x.GRU_norm.bias", True),
    ("linear.weight linear.bias layer_norm.weight layer_norm.bias", False),
]


@pytest.mark.parametrize(("names", "x_first"), DREAMERS)
def test_dreamer(names, x_first):
    arguments = compat.dreamer_gru_arguments(U, bias="-" not in names)
    kernel, *vectors = names.replace("- ", "").split()
    size = (D + U, 3 * U)
    shapes = {kernel: size[::-1] if "." in kernel else size}
    weights = drawn(shapes | dict.fromkeys(vectors, 3 * U))

    def load(layer, arrays):
        loaded = compat.load_dreamer_gru(layer, arrays)
        if arrays is not weights:  # A gradient has no constant in it.
            beta = getattr(loaded, "cell", loaded).sum_beta
            beta.assign(beta + 1.0 * (np.arange(3 * U) < U))
        return loaded

    check(
        functools.partial(keras_ln.LNGRU, **arguments),
        load,
        functools.partial(dreamer, names=names, x_first=x_first),
        weights,
    )


def test_a_new_layer_of_dreamer_starts_as_dreamers():
    """Its config holds the initializer."""
    layer = keras_ln.LNGRU(**compat.dreamer_gru_arguments(U))
    layer = keras_ln.LNGRU.from_config(layer.get_config())
    layer.build((None, None, D))
    np.testing.assert_array_equal(
        layer.cell.sum_beta, np.repeat([-1.0, 0.0, 0.0], U)
    )


def test_the_epsilon_of_a_module():
    """A layer with another one is refused."""
    import torch  # Of the backend that runs this test.

    norm = functools.partial(torch.nn.LayerNorm, eps=1e-4)
    linear = functools.partial(torch.nn.Linear, bias=False)
    gru, lstm = torch.nn.Module(), torch.nn.Module()
    gru.linear, gru.layer_norm = linear(D + U, 3 * U), norm(3 * U)
    lstm.x2g, lstm.p2g = linear(D, 4 * U), linear(U, 4 * U)
    lstm.g_norm, lstm.c_norm = norm(4 * U), norm(U)
    for load, module, make, arguments in (
        (compat.load_dreamer_gru, gru, keras_ln.LNGRU, {"normalize": ("sum",)}),
        (
            *(compat.load_torchaudio_lstm, lstm, keras_ln.LNLSTM),
            compat.torchaudio_lstm_arguments(U),
        ),
    ):
        make = functools.partial(make, **arguments | {"units": U})
        load(make(epsilon=1e-4), module)
        with pytest.raises(ValueError, match=r"epsilon=0.0001.*epsilon=0.001"):
            load(make(epsilon=1e-3), module)


def test_layers_and_directions_of_fastrnns():
    """Names as its modules make them, in any order; 10 comes after 2."""
    load, make, own = loader("fastrnns_lstm", return_sequences=True)
    cells = {
        f"layers.{layer}.directions.{direction}.cell.{name}": (
            shape if "ih" not in name or layer == 2 else (G, 2 * U)
        )
        for layer in (10, 2)
        for direction in (1, 0)
        for name, shape in own.items()
    }
    weights = drawn(cells)
    layers = [keras.layers.Bidirectional(make()) for _ in range(2)]
    assert load(layers, weights) is layers
    y = x = np.random.default_rng(1).normal(size=(B, T, D))
    for layer in (2, 10):
        cells = [
            {
                name: weights[f"layers.{layer}.directions.{way}.cell.{name}"]
                for name in own
            }
            for way in range(2)
        ]
        back = fastrnns(cells[1], y[:, ::-1])[:, ::-1]
        y = np.concatenate([fastrnns(cells[0], y), back], axis=-1)
    found = layers[1](layers[0](x.astype("float32")))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(found), y, atol=1e-5)


OTHER_SITES = {"normalize": ("kernel", "state"), "use_bias": True}
OTHER_SITES |= {"carry_normalized_state": False}
WRONG = {
    "tf1_lstm": OTHER_SITES
    | {"groups": "all", "center": False, "epsilon": 1e-5}
    | {"recurrent_activation": "hard_sigmoid"},
    "haste_lstm": {"groups": "gate", "center": True, "epsilon": 1e-3}
    | {"carry_normalized_state": True, "cell_zoneout": 0.1}
    | {"activation": "relu"},
    "haste_gru": {"groups": "gate", "center": True, "use_bias": False}
    | {"epsilon": 1e-3},
    "fastrnns_lstm": {"carry_normalized_state": False, "use_bias": True}
    | {"epsilon": 1e-3, "zoneout": 0.1},
    "torchaudio_lstm": OTHER_SITES | {"groups": "gate"},
    "icefall_lstm": OTHER_SITES | {"groups": "paper", "epsilon": 1e-3},
    "dreamer_gru": {"normalize": ("kernel",), "groups": "gate"}
    | {"use_bias": True, "epsilon": 1e-5},
}


@pytest.mark.parametrize("kind", WRONG)
def test_each_setting_must_be_right(kind):
    load, make, shapes = loader(kind)
    weights = drawn(shapes)
    for name, value in WRONG[kind].items():
        # Which needs the site "sum".
        layer = make(use_sum_bias=False, **{name: value})
        found = f"Received: .*{name}="
        again = type(layer).__name__.removesuffix("Cell") + r"\(units, "
        with refused("must have the settings of ", again, found):
            load(layer, weights)
    load(make(), weights)


# Words, the kind, and either the weights or what differs: shapes, or the layer.
TF1_UNEVEN = {"input/gamma": U + 1, "output/gamma": U - 1}
REFUSED = [
    ("`weights` must fit lnlstm", "tf1_lstm", {"kernel": (D + U, G - 1)}),
    # As many numbers in all as there have to be.
    (r"fit lnlstm\S*: expected .* \(.*Received: .* \(", "tf1_lstm", TF1_UNEVEN),
    (r"fit lnlstm\S*: .* \(.*Received: .* \(", "tf1_lstm", {"kernel": ()}),
    # A checkpoint of a whole model.
    ("of one cell. Received: dense/", "tf1_lstm", {"dense/kernel": (U, 2)}),
    (r"expected .*gamma \(2, 18\).*Recei", "haste_gru", {"gamma": (2, U)}),
    (r"Received: .*kernel \(0, 18\)", "haste_gru", {"kernel": (0, 3 * U)}),
    ("must be fastrnns' LayerNormLSTM", "fastrnns_lstm", {"other": ()}),
]
REFUSED_WEIGHTS = [
    ("Received: kernel", "tf1_lstm", {"kernel": np.ones((D + U, G))}),
    ("Received: 1, 2", "tf1_lstm", {1: 1.0, 2: 1.0}),
    ("among its names. Received: .*kernel", "dreamer_gru", {"kernel": {}}),
    ("must be fastrnns' LayerNormLSTM", "fastrnns_lstm", {"weight_ih": 0}),
    ("must be fastrnns' LayerNormLSTM", "fastrnns_lstm", [0]),
]
REFUSED_LAYERS = [
    ('groups=.gate.* Received: .*"?paper', "tf1_lstm", keras_ln.LNLSTM(U)),
    ("groups='all'.* groups='paper'", "haste_gru", keras_ln.LNGRU(U)),
    ("carry_normalized_state=True", "fastrnns_lstm", keras_ln.LNLSTM(U)),
    *(
        ("`weights` must fit lnlstm", kind, loader(kind)[1](units=U + 1))
        for kind in ("tf1_lstm", "fastrnns_lstm")
    ),
    (
        "each of fastrnns' LayerNormLSTM: only one",
        *("fastrnns_lstm", [loader("fastrnns_lstm")[1]()] * 2),
    ),
]


@pytest.mark.parametrize(("words", "kind", "what"), REFUSED)
def test_shapes_that_are_refused(words, kind, what):
    load, make, shapes = loader(kind)
    layer = make()
    with refused(words):
        load(layer, drawn(shapes | what))
    assert not layer.built


@pytest.mark.parametrize(("words", "kind", "what"), REFUSED_WEIGHTS)
def test_weights_that_are_refused(words, kind, what):
    load, make, _ = loader(kind)
    with refused(words):
        load(make(), what)


@pytest.mark.parametrize(("words", "kind", "what"), REFUSED_LAYERS)
def test_layers_that_are_refused(words, kind, what):
    load, _, shapes = loader(kind)
    with refused(words):
        load(what, drawn(shapes))
