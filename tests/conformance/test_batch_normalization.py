"""BatchNormalization: statistics, moving averages, masks, `unbiased`."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from descriptors import BY_NAME, named_weights, randomize
from reference import norms
from statistics_models import moving, randomized
from tolerances import FLOAT64, SAME_PROGRAM

from keras_ln import BatchNormalization


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
        x[mask],
        to_numpy(layer.gamma),
        to_numpy(layer.beta),
        unbiased=unbiased,
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
    for value, right in zip(moving(layer), before, strict=True):
        np.testing.assert_array_equal(value, right)


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
    for value, right in zip(moving(layer), before, strict=True):
        np.testing.assert_array_equal(value, right)


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
