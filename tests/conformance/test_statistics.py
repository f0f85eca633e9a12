"""reestimate_statistics: plain averages, and nothing else changed."""

import itertools

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from reference import norms
from statistics_models import (
    F,
    T,
    average,
    batches_of,
    check,
    copies,
    example,
    moving,
    randomized,
    simple,
)
from tolerances import FLOAT32_VALUES

import keras_ln
from keras_ln import reestimate_statistics

BACKEND = keras.backend.backend()


@pytest.mark.parametrize(
    "layer_class, options",
    [
        (keras.layers.BatchNormalization, {}),
        (keras_ln.BatchNormalization, {}),
        (keras_ln.BatchNormalization, {"unbiased": True}),
    ],
)
def test_arrays(layer_class, options):
    model, layer = simple(layer_class(**options))
    others = copies(model.trainable_variables)
    x = example(20)
    reestimate_statistics(model, x, batch_size=8)
    check(layer, average([x[:8], x[8:16], x[16:]], **options))
    assert layer.momentum == 0.99
    np.testing.assert_equal(copies(model.trainable_variables), others)
    # Keras' default batch size.
    x = example(70, seed=2)
    reestimate_statistics(model, x)
    check(layer, average([x[:32], x[32:64], x[64:]], **options))


def test_recurrent_statistics_count_the_batches_that_reach_them():
    layer = keras_ln.RecurrentBatchNorm(max_steps=T + 1)
    model = keras.Sequential(
        [keras.Input((None, F)), keras.layers.Masking(), layer]
    )
    randomized(model)
    expected = moving(layer)
    x = [example(6, steps=n, seed=n) for n in (2, 4, 3)]
    x[1][:3, 3] = 0.0  # masked
    reestimate_statistics(model, (batch for batch in x))
    for t in range(T):
        rows = [b[:, t][b[:, t].any(-1)] for b in x if b.shape[1] > t]
        for k, value in enumerate(average(rows)):
            expected[k][t] = value
    check(layer, expected)  # step T was never reached, and stays


@pytest.mark.parametrize("random", ["dropout", "zoneout"])
def test_bnlstm_without_what_is_random(random):
    """Its dropout is off, and zoneout leaves its expectation."""
    rates = {random: 0.5, f"recurrent_{random}": 0.5}
    if random == "zoneout":
        rates = {"zoneout": 0.5, "cell_zoneout": 0.25}
    arguments = {"max_steps": T, "return_sequences": True}
    layer = keras_ln.BNLSTM(2, momentum=0.9, **arguments, **rates)
    model = keras.Sequential([keras.Input((T, F)), layer])
    randomized(model)
    # With momentum 0 the layer itself leaves the statistics of one batch.
    kept = rates if random == "zoneout" else {}
    single = keras_ln.BNLSTM(2, momentum=0.0, **arguments, **kept)
    single.build((None, T, F))
    single.set_weights(
        [w for w in layer.get_weights() if w.dtype == np.float32]
    )
    if kept:
        single.cell.zoneouts = lambda *_: {}
    x = example(20, steps=T)
    recorded = []
    for batch in batches_of(x):
        single(batch, training=True)
        recorded.append(copies(single.non_trainable_weights))
    before = copies(model.trainable_variables)
    seeds = copies(v for v in model.variables if "seed" in v.path)
    reestimate_statistics(model, x, batch_size=8)
    for value, *right in zip(
        copies(layer.non_trainable_weights), *recorded, strict=True
    ):
        close(value, np.mean(right, 0), rtol=1e-3, atol=1e-4)
    assert {name: getattr(layer.cell, name) for name in rates} == rates
    assert layer.cell.momentum == 0.9
    after = copies(v for v in model.variables if "seed" in v.path)
    np.testing.assert_equal(
        copies(model.trainable_variables) + after, before + seeds
    )


def test_reestimate_reaches_nested_layers():
    """Models in models, wrappers, and layers in lists."""
    inner = keras.Sequential(
        [keras.Input((T, F)), keras_ln.RecurrentBatchNorm()]
    )
    wrapped = keras.layers.Bidirectional(
        keras_ln.BNLSTM(2, max_steps=T, return_sequences=True)
    )

    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = [inner, {"wrapped": wrapped}]
            self.last = keras.layers.BatchNormalization()

        def call(self, x, training=False):
            x = self.parts[1]["wrapped"](self.parts[0](x))
            return self.last(x)

    model = Outer()
    x = example(20, steps=T)
    model(x)
    randomized(model)
    moving = [v for v in model.non_trainable_weights if "moving" in v.name]
    before = copies(moving)
    assert len(moving) == 2 + 2 * 6 + 2
    reestimate_statistics(model, x, batch_size=8)
    for variable, old in zip(moving, before, strict=True):
        assert (np.abs(to_numpy(variable) - old).max(-1) > 1e-3).all()
    steps = [average([b[:, t] for b in batches_of(x)]) for t in range(T)]
    check(inner.layers[0], [np.stack(v) for v in zip(*steps, strict=True)])


def test_a_call_counts_for_the_steps_that_it_reaches():
    """Of one layer, for sequences of several lengths."""
    for lengths in itertools.permutations((2, T, T)):
        layer = keras_ln.RecurrentBatchNorm(max_steps=T)
        inputs = [keras.Input((steps, F)) for steps in lengths]
        model = keras.Model(inputs, [layer(x) for x in inputs])
        arrays = [
            example(6, steps=steps, seed=seed)
            for seed, steps in enumerate(lengths)
        ]
        reestimate_statistics(model, arrays, batch_size=6)
        expected = [
            np.mean([x[:, t].mean(0) for x in arrays if t < x.shape[1]], 0)
            for t in range(T)
        ]
        close(to_numpy(layer.moving_mean), np.stack(expected), **FLOAT32_VALUES)


class MeanAlone(keras.layers.Identity):
    """Of another library: a momentum, but no variance."""

    momentum = 0.9

    def build(self, shape):
        self.add_weight(name="moving_mean", trainable=False)


def test_frozen_layers_and_others_stay():
    frozen = keras_ln.BatchNormalization(trainable=False)
    layer = keras_ln.BatchNormalization()
    model = keras.Sequential(
        [
            keras.Input((T, F)),
            keras.layers.Dropout(0.5),
            MeanAlone(),
            frozen,
            layer,
            keras.layers.LSTM(2, dropout=0.5),
        ]
    )
    randomized(frozen), randomized(layer)
    others = model.variables
    before = copies(others)
    x = example(20, steps=T)
    reestimate_statistics(model, x, batch_size=8)
    changed = [
        v.path
        for v, old in zip(others, before, strict=True)
        if (to_numpy(v) != old).any()
    ]
    assert changed == [layer.moving_mean.path, layer.moving_variance.path]
    # Inference of what comes before: no dropout, the frozen statistics.
    mean, variance, gamma, beta = map(
        to_numpy,
        (frozen.moving_mean, frozen.moving_variance, frozen.gamma, frozen.beta),
    )
    below = norms.standardize(x, mean, variance, gamma, beta)
    rows = [b.reshape(-1, F) for b in batches_of(below)]
    check(layer, average(rows))


class Broken(Exception):
    pass


def breaks(x):
    yield x[:8]
    raise Broken


class Brittle(keras.layers.Layer):
    """Fails on batches of another size than 8."""

    def call(self, x):
        if x.shape[0] != 8:
            raise Broken
        return x

    def compute_output_shape(self, input_shape):
        return input_shape


@pytest.mark.parametrize("where", ["data", "model"])
def test_an_exception_leaves_everything_as_it_was(where):
    layer = keras_ln.BatchNormalization(momentum=0.7)
    stack = [keras.Input((F,)), layer]
    if where == "model":
        stack.append(Brittle())
    model = randomized(keras.Sequential(stack))
    model.compile("sgd", "mse", run_eagerly=True)
    before = copies(model.variables)
    x = example(20)
    with pytest.raises(Broken):
        reestimate_statistics(model, breaks(x) if where == "data" else [x])
    np.testing.assert_equal(copies(model.variables), before)
    assert layer.momentum == 0.7
    assert "call" not in vars(layer) and "call" not in vars(model)
    y = model.predict(x[:8], verbose=0)
    expected = norms.standardize(
        x[:8], before[2], before[3], before[0], before[1]
    )
    close(y, expected, **FLOAT32_VALUES)


@pytest.mark.every_backend
@pytest.mark.parametrize("mode", ["eager", "graph", "compiled", "several"])
def test_a_compiled_model_goes_on_as_before(mode):
    model, layer = simple()
    options = {
        "eager": {"run_eagerly": True},
        "graph": {"jit_compile": False},
        "compiled": {"jit_compile": BACKEND != "torch"},
        "several": {"steps_per_execution": 1 if BACKEND == "torch" else 2},
    }
    model.compile(keras.optimizers.SGD(0.1), "mse", **options[mode])
    x, y = example(24), np.zeros((24, 2))
    model.fit(x, y, batch_size=8, verbose=0)
    model.predict(x, batch_size=8, verbose=0)
    reestimate_statistics(model, x, batch_size=8)
    expected = average([x[:8], x[8:16], x[16:]])
    check(layer, expected)
    steps = model.steps_per_execution
    assert steps == options[mode].get("steps_per_execution", 1)
    # predict is inference again, with the new statistics,
    kernel, bias = model.layers[-1].get_weights()
    gamma, beta = layer.get_weights()[:2]
    inferred = norms.standardize(x, *expected, gamma, beta) @ kernel + bias
    close(model.predict(x, batch_size=8, verbose=0), inferred, **FLOAT32_VALUES)
    check(layer, expected)
    # and fit moves them at the layer's own momentum.
    model.fit(x[:8], y[:8], batch_size=8, verbose=0)
    batch = norms.batch_statistics(x[:8].astype("float64"))
    check(
        layer,
        [
            norms.moving_average(old, new, 0.99)
            for old, new in zip(expected, batch, strict=True)
        ],
    )
