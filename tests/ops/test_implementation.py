"""Which implementation would run, why not the others, and that it does."""

import dataclasses

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND
from descriptors import BY_NAME, SEQUENCE_LAYERS, B, D, T

import keras_ln
from keras_ln import backend, ops
from keras_ln.ops.cells.types import Vector
from keras_ln.ops.recurrence.run import IMPLEMENTATIONS

# The kernels have tests of their own: test_native.py.
pytestmark = pytest.mark.usefixtures("without_kernels")


@pytest.fixture
def ran(monkeypatch):
    """The names of the implementations that run from now on."""
    names = []
    for name, implementation in [*IMPLEMENTATIONS.items()]:

        def run(*args, name=name, run=implementation.run):
            names.append(name)
            return run(*args)

        noted = dataclasses.replace(implementation, run=run)
        monkeypatch.setitem(IMPLEMENTATIONS, name, noted)
    return names


def bump(z):
    return z / (1.0 + z * z)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_the_default_is_fused(row, ran):
    layer = row.make()
    for _ in ("not built", "built"):
        name, reasons = ops.implementation(layer)
        assert (name, [*reasons]) == ("fused", ["native", "loop"])
        assert "fused comes before it" in reasons["loop"]
        layer(np.ones((B, T, D), "float32"))
    assert ran == ["fused", "fused"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"unroll": True}, "unroll=True asks for an unrolled loop"),
        ({"use_fused": False}, "use_fused=False asks for the cell loop"),
        ({"activation": bump}, "`activation` must be one of linear, relu, sig"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str([*value]),
)
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_the_loop_and_why(row, arguments, reason, ran):
    layer = row.make(**arguments)
    name, reasons = ops.implementation(layer)
    assert (name, [*reasons]) == ("loop", ["native", "fused"])
    assert reason in reasons["fused"]
    layer(np.ones((B, T, D), "float32"))
    assert ran == ["loop"]


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_inside_portable(row, ran):
    layer, must = row.make(), row.make(use_fused=True)
    with ops.portable():
        name, reasons = ops.implementation(layer)
        assert (name, [*reasons]) == ("loop", ["native", "fused"])
        assert "ops.portable() asks" in reasons["fused"]
        layer(np.ones((B, T, D), "float32"))
        with pytest.raises(ValueError, match=f"True, but {row.name}.*portable"):
            ops.implementation(must)
    assert ran == ["loop"]
    assert ops.implementation(must)[0] == "fused"


def test_a_portable_trace_can_be_written_out(monkeypatch):
    layer, x = BY_NAME["LNGRU"].make(), np.ones((B, T, D), "float32")
    calls, scan = [], backend.scan
    monkeypatch.setattr(
        backend, "scan", lambda *a, **k: (calls.append(a), scan(*a, **k))[1]
    )
    found = []
    for unroll in (False, True):
        with ops.portable(unroll=unroll):
            layer(x)
        found.append(len(calls))
    assert found == [1, 1]


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_what_a_compiler_differentiates_by_itself(row, ran, monkeypatch):
    layer, must = row.make(), row.make(use_fused=True)
    monkeypatch.setattr(backend, "reads_python", lambda: True)
    name, reasons = ops.implementation(layer)
    assert name == "loop" and "torch.compile" in reasons["fused"]
    layer(np.ones((B, T, D), "float32"))
    with pytest.raises(ValueError, match=f"True, but {row.name}.*torch.compil"):
        must(np.ones((B, T, D), "float32"))
    assert ran == ["loop"]


if BACKEND != "jax":  # Which does not tell.

    def in_forward_mode(function, x):
        if BACKEND == "torch":
            import torch

            x = torch.from_numpy(x)
            return torch.func.jvp(function, (x,), (x,))
        import tensorflow as tf

        x = tf.constant(x)
        with tf.autodiff.ForwardAccumulator(x, x):
            return function(x)

    @pytest.mark.every_backend
    @pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
    def test_forward_mode(row, ran):
        layer, must = row.make(), row.make(use_fused=True)
        x, answers = np.ones((B, T, D), "float32"), []

        def function(x):
            answers.append(ops.implementation(layer))
            return layer(x)

        in_forward_mode(function, x)
        ((name, reasons),) = answers
        assert name == "loop"
        assert "ordinary operations" in reasons["fused"]
        assert reasons["native"] == reasons["fused"]
        message = f"True, but {row.name}.*ordinary operations"
        with pytest.raises(ValueError, match=message):
            in_forward_mode(must, x)
        assert ran == ["loop"]
        assert ops.implementation(layer)[0] == "fused"

    @pytest.mark.every_backend
    def test_forward_mode_through_another_layer(ran):
        """TensorFlow follows tensors, torch whole programs."""
        layer, x = BY_NAME["LNGRU"].make(), np.ones((B, T, D), "float32")
        in_forward_mode(lambda _: layer(x), x)
        assert ran == ["fused" if BACKEND == "tensorflow" else "loop"]


def test_a_step_of_its_own_sees_weights_of_its_own():
    """Which the op's own step would refuse."""

    class Shifted(keras_ln.LNGRUCell):
        vectors = (
            *keras_ln.LNGRUCell.vectors,
            Vector("shift_beta", 1, "kernel"),
        )

        def step(self, projected, states, weights, recurrent_mask):
            (h,) = super().step(projected, states, weights, recurrent_mask)
            return (h + weights["shift_beta"],)

    class Layer(keras_ln.LNGRU):
        cell_class = Shifted

    layer = Layer(3, return_sequences=True, beta_initializer="ones")
    y = keras.ops.convert_to_numpy(layer(np.zeros((B, T, D), "float32")))
    twin = keras.layers.RNN(layer.cell, return_sequences=True)
    right = keras.ops.convert_to_numpy(twin(np.zeros((B, T, D), "float32")))
    close(y, right, rtol=1e-5)
    assert abs(y).max() > 1.0


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.LSTM(2),
        keras.layers.RNN(keras_ln.LNLSTMCell(2)),
        keras_ln.LNLSTMCell(2),
        keras_ln.LayerNormalization(),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_other_layers_are_refused(layer):
    kind = type(layer).__name__
    message = f"`layer` must be a recurrent layer.*keras_ln.*Received: {kind}"
    with pytest.raises(ValueError, match=message):
        ops.implementation(layer)
    assert f"Received: {kind}" in ops.unsupported_reason(layer)


@pytest.mark.parametrize("use_fused", ["auto", True, False])
def test_the_function_chooses_alike(use_fused, ran):
    problem = BY_NAME["LNGRU"]
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(size=shape).astype("float32")
        for name, shape in problem.weights.items()
    }
    x = rng.normal(size=(B, T, D)).astype("float32")
    ops.ln_gru(x, None, weights, use_fused=use_fused)
    assert ran == ["loop" if use_fused is False else "fused"]


def test_zero_output_for_mask_of_the_functions():
    row = BY_NAME["LNSimpleRNN"]
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(size=shape).astype("float32")
        for name, shape in row.weights.items()
    }
    x = rng.normal(size=(B, T, D)).astype("float32")
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]], bool)
    for backwards in (False, True):
        last, outputs, (h,) = (
            keras.tree.map_structure(keras.ops.convert_to_numpy, part)
            for part in ops.ln_simple_rnn(
                x,
                None,
                weights,
                mask=mask,
                go_backwards=backwards,
                zero_output_for_mask=True,
            )
        )
        seen = mask[:, ::-1] if backwards else mask
        assert ((outputs != 0.0).all(-1) == seen).all()
        np.testing.assert_array_equal(last, outputs[:, -1])
        assert (h != 0.0).all()
