"""RecurrentBatchNorm: statistics of each step, masks, moving averages."""

import keras
import numpy as np
import pytest
import statistics_models
from arrays import close, to_numpy
from backend_gradients import value_and_gradients
from reference import gradients, norms
from statistics_models import moving
from tolerances import FLOAT64

from keras_ln import RecurrentBatchNorm

B, T, F = 4, 5, 3

MASKS = {
    "right": np.arange(T) < np.array([[5], [2], [3], [3]]),
    "left": np.arange(T) >= np.array([[0], [2], [1], [3]]),
    "middle": np.array([[1, 0, 1, 1, 1], [0, 1, 0, 1, 1]] * 2) > 0,
    "all": np.zeros((B, T), bool),
}


def example(batch=B, steps=T, seed=1):
    rng = np.random.default_rng(seed)
    # Every step has its own mean and deviation.
    scale = 1.0 + np.arange(steps)[:, None]
    return scale * (1.0 + rng.normal(size=(batch, steps, F)))


def randomized(**arguments):
    layer = RecurrentBatchNorm(
        **{"max_steps": T, "dtype": "float64", **arguments}
    )
    return statistics_models.randomized(layer, (None, None, F))


def parameters(layer):
    return to_numpy(layer.gamma), to_numpy(layer.beta)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("sequence_wise", [False, True])
def test_masked_entries_do_not_count(kind, sequence_wise):
    layer = randomized(sequence_wise=sequence_wise, momentum=0.25)
    x, mask = example(), MASKS[kind]
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
    layer = randomized(momentum=momentum)
    expected = moving(layer)
    for batch in range(3):
        x = example(steps=steps, seed=batch)
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
    layer = randomized(sequence_wise=sequence_wise)
    mean, variance = moving(layer)
    x = example(steps=steps)
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
    layer = randomized(**options)
    x = example()
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
    x = example(batch=1).astype("float32")
    layer = randomized(dtype="float32")
    with pytest.warns(UserWarning, match="RecurrentBatchNorm layer .* one el"):
        y = to_numpy(layer(x, training=True))
    np.testing.assert_array_equal(y, np.broadcast_to(layer.beta, y.shape))
    with pytest.raises(ValueError, match=r"divides by n - 1.*shape \(1, 5"):
        randomized(unbiased=True)(x, training=True)
    one = np.zeros((B, T), bool)
    one[0] = True
    y = randomized(unbiased=True)(example(), training=True, mask=one)
    assert np.isnan(to_numpy(y)).all()
    # Sequence-wise, one sequence has T elements per statistic.
    y = randomized(unbiased=True, sequence_wise=True)(x, training=True)
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
