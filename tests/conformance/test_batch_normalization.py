"""BatchNormalization and RecurrentBatchNorm: statistics, averages, masks."""

import keras
import numpy as np
import pytest
import statistics_models
from arrays import close, to_numpy
from backend_gradients import value_and_gradients
from descriptors import BY_NAME, named_weights, randomize
from reference import gradients, norms
from statistics_models import moving, randomized
from tolerances import FLOAT64, SAME_PROGRAM

from keras_ln import BatchNormalization, RecurrentBatchNorm


def example(*shape, seed=1):
    return 1.0 + 2.0 * np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("momentum", [0.0, 0.75, 1.0])
@pytest.mark.parametrize("unbiased", [False, True])
def test_moving_statistics_are_the_exponential_average(momentum, unbiased):
    layer = randomized(
        BatchNormalization(
            momentum=momentum, unbiased=unbiased, dtype="float64"
        ),
        (None, 4),
    )
    expected = moving(layer)
    for step in range(5):
        x = example(6, 4, seed=step)
        layer(x, training=True)
        batch = norms.batch_statistics(x, unbiased=unbiased)
        for k in range(2):
            expected[k] = norms.moving_average(expected[k], batch[k], momentum)
            close(moving(layer)[k], expected[k], **FLOAT64)
    x = example(3, 4, seed=99)
    close(
        layer(x, training=False),
        norms.standardize(
            x, *expected, to_numpy(layer.gamma), to_numpy(layer.beta)
        ),
        **FLOAT64,
    )


@pytest.mark.parametrize(
    "name, options",
    [
        ("BatchNormalization", {}),
        ("RecurrentBatchNorm", {}),
        ("BNLSTM", {"use_fused": "auto"}),
        ("BNLSTM", {"use_fused": False}),
    ],
)
def test_inference_and_frozen_layers_record_nothing(name, options):
    row = BY_NAME[name]
    layer = row.make(dtype="float64", **options)
    layer.build(row.input_shape)
    randomize(layer)
    x, before = example(*row.input_shape), named_weights(layer)
    y = to_numpy(layer(x, training=False))
    # One row alone is treated as among others.
    close(layer(x[:1]), y[:1], **FLOAT64)
    layer.trainable = False
    close(layer(x, training=True), y, **FLOAT64)
    np.testing.assert_equal(named_weights(layer), before)


@pytest.mark.parametrize("unbiased", [False, True])
def test_masked_entries_do_not_count(unbiased):
    x = example(4, 5, 3)
    mask = np.random.default_rng(3).random((4, 5)) < 0.6
    layer = randomized(
        BatchNormalization(momentum=0.0, unbiased=unbiased, dtype="float64"),
        x.shape,
    )
    dirty = np.where(mask[..., None], x, np.nan)
    y = to_numpy(layer(dirty, training=True, mask=mask))
    expected = norms.batch_norm(
        x[mask], to_numpy(layer.gamma), to_numpy(layer.beta), unbiased=unbiased
    )
    close(y[mask], expected, **FLOAT64)
    right = norms.batch_statistics(x[mask], unbiased=unbiased)
    close(moving(layer), right, **FLOAT64)


def test_mask_of_keras_with_features_on_another_axis():
    """Masking leaves out the last axis, wherever the features stand."""
    x = example(4, 3, 5)
    x[np.random.default_rng(3).random((4, 3)) < 0.3] = 0.0
    layer = BatchNormalization(axis=1, momentum=0.0, dtype="float64")
    layer(keras.layers.Masking(dtype="float64")(x), training=True)
    for feature in range(3):
        valid = x[:, feature][(x[:, feature] != 0.0).any(-1)]
        right = norms.batch_statistics(valid.reshape(-1, 1))
        for value, expected in zip(moving(layer), right, strict=True):
            close(value[feature], expected[0], **FLOAT64)


def test_a_mask_of_one_column_counts_every_element():
    x = example(4, 5, 6, 3)
    mask = np.random.default_rng(3).random((4, 5, 1)) < 0.6
    layer = BatchNormalization(momentum=0.0, dtype="float64")
    layer(x, training=True, mask=mask)
    right = norms.batch_statistics(x[mask[..., 0]].reshape(-1, 3))
    close(moving(layer), right, **FLOAT64)


def test_nothing_is_recorded_when_all_is_masked():
    x = example(4, 5, 3).astype("float32")
    layer = randomized(BatchNormalization(), x.shape)
    before = moving(layer)
    y = layer(x, training=True, mask=np.zeros((4, 5), bool))
    assert np.isfinite(to_numpy(y)).all()
    np.testing.assert_equal(moving(layer), before)


def test_batch_of_one_gives_beta_and_warns_once():
    layer = randomized(BatchNormalization(), (None, 3))
    with pytest.warns(UserWarning, match="one element per statistic") as seen:
        y = layer(example(1, 3).astype("float32"), training=True)
        layer(example(1, 3).astype("float32"), training=True)
    assert len([w for w in seen if "per statistic" in str(w.message)]) == 1
    np.testing.assert_array_equal(to_numpy(y)[0], to_numpy(layer.beta))


def test_unbiased_refuses_a_batch_of_one():
    layer = BatchNormalization(unbiased=True)
    x = example(1, 3).astype("float32")
    with pytest.raises(ValueError, match=r"divides by n - 1.*shape \(1, 3\)"):
        layer(x, training=True)
    assert np.isfinite(to_numpy(layer(x, training=False))).all()


@pytest.mark.every_backend
def test_unbiased_of_one_is_nan_where_the_graph_cannot_know():
    layer = randomized(BatchNormalization(unbiased=True), (None, 5, 3))
    before = moving(layer)
    mask = np.zeros((2, 5), bool)
    mask[0, 0] = True
    y = layer(example(2, 5, 3).astype("float32"), training=True, mask=mask)
    assert np.isnan(to_numpy(y)).all()
    np.testing.assert_equal(moving(layer), before)


def test_renorm_is_keras():
    # Newer versions of Keras have it.
    options = {"renorm": True, "epsilon": 1e-3}
    ours = BatchNormalization(**options)
    theirs = keras.layers.BatchNormalization(**options)
    for step in range(3):
        x = example(6, 3, seed=step).astype("float32")
        close(ours(x, training=True), theirs(x, training=True), **SAME_PROGRAM)
    copy = BatchNormalization.from_config(ours.get_config())
    assert copy.renorm and copy.get_config() == ours.get_config()
    with pytest.raises(ValueError, match="`unbiased=True` cannot be combined"):
        BatchNormalization(unbiased=True, **options)


B, T, F = 4, 5, 3

MASKS = {
    "right": np.arange(T) < np.array([[5], [2], [3], [3]]),
    "left": np.arange(T) >= np.array([[0], [2], [1], [3]]),
    "middle": np.array([[1, 0, 1, 1, 1], [0, 1, 0, 1, 1]] * 2) > 0,
    "all": np.zeros((B, T), bool),
}


def steps_of(batch=B, steps=T, seed=1):
    rng = np.random.default_rng(seed)
    # Every step has its own mean and deviation.
    scale = 1.0 + np.arange(steps)[:, None]
    return scale * (1.0 + rng.normal(size=(batch, steps, F)))


def of_steps(**arguments):
    layer = RecurrentBatchNorm(
        **{"max_steps": T, "dtype": "float64", **arguments}
    )
    return statistics_models.randomized(layer, (None, None, F))


def parameters(layer):
    return to_numpy(layer.gamma), to_numpy(layer.beta)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("sequence_wise", [False, True])
def test_masked_entries_of_steps_do_not_count(kind, sequence_wise):
    layer = of_steps(sequence_wise=sequence_wise, momentum=0.25)
    x, mask = steps_of(), MASKS[kind]
    before = moving(layer)
    dirty = np.where(mask[..., None], x, np.nan)
    y = to_numpy(layer(dirty, training=True, mask=mask))
    expected, *batch, count = norms.batch_norm_sequence(
        x, *parameters(layer), mask=mask, sequence_wise=sequence_wise
    )
    close(y[mask], expected[mask], **FLOAT64)
    for value, old, new in zip(moving(layer), before, batch, strict=True):
        if sequence_wise:
            new, counted = new[:1], np.array([mask.any()])
        else:
            counted = count > 0
        right = np.where(
            counted[:, None], norms.moving_average(old, new, 0.25), old
        )
        close(value, right, **FLOAT64)


@pytest.mark.parametrize("steps", [1, T - 2, T, T + 3])
@pytest.mark.parametrize("momentum", [0.0, 0.75, 1.0])
def test_moving_statistics(steps, momentum):
    layer = of_steps(momentum=momentum)
    expected = moving(layer)
    for batch in range(3):
        x = steps_of(steps=steps, seed=batch)
        layer(x, training=True)
        for t in range(min(steps, T)):
            new = norms.batch_statistics(x[:, t])
            for k in range(2):
                expected[k][t] = norms.moving_average(
                    expected[k][t], new[k], momentum
                )
        close(moving(layer), expected, **FLOAT64)


@pytest.mark.parametrize("steps", [1, T - 2, T, T + 3])
@pytest.mark.parametrize("sequence_wise", [False, True])
def test_inference(steps, sequence_wise):
    layer = of_steps(sequence_wise=sequence_wise)
    mean, variance = moving(layer)
    x = steps_of(steps=steps)
    row = np.minimum(np.arange(steps), len(mean) - 1)
    expected = norms.standardize(
        x, mean[row], variance[row], *parameters(layer)
    )
    close(layer(x), expected, **FLOAT64)


@pytest.mark.parametrize(
    "masked, unbiased", [(False, False), (True, False), (False, True)]
)
@pytest.mark.parametrize("sequence_wise", [False, True])
def test_values_and_gradients(masked, unbiased, sequence_wise):
    options = {"sequence_wise": sequence_wise, "unbiased": unbiased}
    layer = of_steps(**options)
    x = steps_of()
    mask = MASKS["middle"] if masked else None
    cotangent = np.random.default_rng(2).normal(size=x.shape)
    if masked:
        cotangent[~mask] = 0.0
    gamma, beta = parameters(layer)
    result = value_and_gradients(
        layer, x, [cotangent], mask=mask, training=True
    )

    def output(a):
        return norms.batch_norm_sequence(**a, mask=mask, **options)[0]

    arrays = {"x": x, "gamma": gamma, "beta": beta}
    kept = ... if mask is None else mask
    close(result.outputs[0][kept], output(arrays)[kept], **FLOAT64)
    right = gradients.complex_step(
        lambda a: (output(a) * cotangent).sum(), arrays
    )
    assert set(result.gradients) == set(right)
    for name, gradient in result.gradients.items():
        assert abs(right[name]).max() > 1e-2
        close(gradient, right[name], name, **FLOAT64)


def test_batch_of_one():
    x = steps_of(batch=1).astype("float32")
    layer = of_steps(dtype="float32")
    with pytest.warns(UserWarning, match="RecurrentBatchNorm layer .* one el"):
        y = to_numpy(layer(x, training=True))
    np.testing.assert_array_equal(y, np.broadcast_to(layer.beta, y.shape))
    with pytest.raises(ValueError, match=r"divides by n - 1.*shape \(1, 5"):
        of_steps(unbiased=True)(x, training=True)
    one = np.zeros((B, T), bool)
    one[0] = True
    y = of_steps(unbiased=True)(steps_of(), training=True, mask=one)
    assert np.isnan(to_numpy(y)).all()
    # Sequence-wise, one sequence has T elements per statistic.
    y = of_steps(unbiased=True, sequence_wise=True)(x, training=True)
    assert np.isfinite(to_numpy(y)).all()


@pytest.mark.parametrize("shape", [(B, F), (B, T, F, 1)])
def test_wrong_rank(shape):
    x = np.ones(shape, "float32")
    message = r"`inputs` must have rank 3, \(batch, time, features\)"
    with pytest.raises(ValueError, match=message):
        RecurrentBatchNorm(max_steps=T)(x)


@pytest.mark.every_backend
def test_unknown_lengths_where_everything_is_float64():
    """Keras then counts in int64, and TensorFlow's shapes stay int32."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    model = keras.Sequential(
        [
            keras.Input((None, F)),
            RecurrentBatchNorm(max_steps=3, momentum=0.9),
            keras.layers.GlobalAveragePooling1D(),
        ]
    )
    model.compile("sgd", "mse")
    x = np.random.default_rng(7).normal(size=(B, 2, F))
    # TensorFlow traces for unknown lengths from the second length on.
    for longer in (0, 1):
        x = np.pad(x, [(0, 0), (0, longer), (0, 0)])
        model.train_on_batch(x, np.zeros((B, F)))
    assert model.predict_on_batch(x).dtype == "float64"
    moving_mean = keras.ops.convert_to_numpy(model.layers[0].moving_mean)
    np.testing.assert_allclose(moving_mean, 0.19 * x.mean(0))
