"""The sequence ops as functions: values, gradients, compiling."""

import contextlib
import dataclasses

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import BACKEND
from descriptors import BY_NAME, SEQUENCE_LAYERS, STEPWISE
from layer_calls import shares
from recurrence import Problem
from tolerances import FLOAT64

from keras_ln import backend, ops
from keras_ln.engine.implementations import fused_op
from keras_ln.ops import public
from keras_ln.ops.cells.lstm import LN_LSTM

# Whether a framework tells that there is something to differentiate.
TELLS = BACKEND != "tensorflow"


def weights_of(layer):
    return {v.name: keras.ops.convert_to_tensor(v) for v in layer.weights}


def call(row, x, states, weights, **options):
    weights = {n: w for n, w in weights.items() if n != "seed_generator_state"}
    if row.batch_statistics:
        options.setdefault("learn", False)
    return row.function(x, states, weights, **options)


if BACKEND == "torch":
    import torch

    def test_weights_in_a_parameter_dict():
        layer = BY_NAME["LNLSTM"].make(return_state=True)
        x = torch.ones((2, 3, 4))
        expected = layer(x)
        weights = torch.nn.ParameterDict(weights_of(layer))
        found = ops.ln_lstm(x, None, weights)
        close(numbers(found[0]), numbers(expected[0]))


def numbers(tensors):
    return [to_numpy(tensor) for tensor in keras.tree.flatten(tensors)]


def test_every_sequence_layer_has_an_op():
    functions = {n for n in ops.__all__ if f"{n}_step" in ops.__all__}
    assert functions == {row.op for row in STEPWISE}
    assert {row.op for row in SEQUENCE_LAYERS} <= {*ops.__all__}


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_function_equals_oracle(row, zones):
    """Without states, and with all that a function returns."""
    share = shares(row) if zones else {}
    both = {"return_sequences": True, "return_state": True}
    problem = Problem(row, both | share)
    layer = problem.layer()
    x = keras.ops.convert_to_tensor(problem.x)
    found = call(row, x, None, weights_of(layer), **share)
    (y, *states), _ = problem.oracle(problem.arrays(layer))
    close(numbers(found[:3]), [y[:, -1], y, *states], **FLOAT64)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_gradient_at_inference(row):
    """Nothing was kept for it: the op runs again."""
    problem = Problem(row, {"return_sequences": True})
    kept = problem.layer(use_fused=True)
    kept.trainable = not row.batch_statistics  # else another function
    gradients = []
    for training in (True, False):
        problem.training = training
        gradients.append(problem.run(kept).gradients["x"])
    np.testing.assert_allclose(*gradients, **FLOAT64)
    assert abs(gradients[0]).max() > 1e-3


def undifferentiated():
    """What says that nobody will ask for a gradient."""
    if BACKEND != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.no_grad()


# TensorFlow cannot know, and takes `training` for it.
@pytest.mark.parametrize("training", [False, True][: 1 + TELLS])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
@pytest.mark.usefixtures("without_kernels")
def test_inference_keeps_nothing_for_a_gradient(row, training, monkeypatch):
    kept = []
    stack = backend.scan

    def scan(*args, **kwargs):
        found = stack(*args, **kwargs)
        kept.append([y for name, y in found[1].items() if name != "outputs"])
        return found

    monkeypatch.setattr(backend, "scan", scan)
    fused_op.cache_clear()  # What is compiled scans no more.
    layer = Problem(row).layer()
    with undifferentiated():
        layer(Problem(row).x, training=training)
    assert kept
    for tensors in kept:
        assert bool(tensors) == row.batch_statistics


def loops_of_a_gradient(layer, x, training, monkeypatch):
    """How many loops over time compute it."""
    if BACKEND == "jax":
        import jax

        weights, others = (
            [v.value for v in variables]
            for variables in (
                layer.trainable_variables,
                layer.non_trainable_variables,
            )
        )

        def loss(weights, x):
            y, _ = layer.stateless_call(weights, others, x, training=training)
            return (y**2).sum()

        text = jax.jit(jax.grad(loss)).lower(weights, x).as_text()
        return text.count("stablehlo.while")
    calls, scan = [], backend.scan
    monkeypatch.setattr(
        backend, "scan", lambda *a, **k: (calls.append(a), scan(*a, **k))[1]
    )
    fused_op.cache_clear()  # What is compiled scans no more.
    problem = Problem(BY_NAME[type(layer).__name__], training=training)
    problem.run(layer)
    return len(calls)


@pytest.mark.every_backend
@pytest.mark.parametrize("name", ["LNGRU", "BNLSTM"])
@pytest.mark.usefixtures("without_kernels")
def test_a_gradient_runs_the_sequence_once(name, monkeypatch):
    """Forward and backward, whether or not it was said that it is asked for.

    On TensorFlow it has to be said: if this fails there, its backend module
    needs the hint no more.
    """
    problem = Problem(BY_NAME[name])
    layer = problem.layer(use_fused=True)
    found = [
        loops_of_a_gradient(layer, problem.x, training, monkeypatch)
        for training in (True, False)
    ]
    assert found == [2, 2 if TELLS else 3]


if BACKEND != "torch":

    @pytest.mark.every_backend
    @pytest.mark.usefixtures("without_kernels")
    def test_repeated_shapes_compile_once():
        traces = []

        def step(*args):
            traces.append(args[0].shape)
            return LN_LSTM.step(*args)

        # A cell of its own, so that no other test has compiled it.
        cell = dataclasses.replace(LN_LSTM, step=step)
        ones = keras.ops.ones
        x, states = ones((2, 5, 3)), [ones((2, 4)), ones((2, 4))]
        weights = {"kernel": ones((3, 16)), "recurrent_kernel": ones((4, 16))}

        def run(x, size=2):
            states_of_size = tuple(state[:size] for state in states)
            public.over_time(cell, x[:size], states_of_size, weights)
            return len(traces)

        first = run(x)
        assert 0 < first == run(x) == run(x + 1.0)
        ragged = run(x, size=1)  # the last batch of an epoch
        assert first < ragged == run(x, size=1) == run(x)
