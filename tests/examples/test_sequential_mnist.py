"""Digits pixel by pixel: the models, the orders, and what a run writes."""

import keras
import numpy as np
import pytest
import sequential_mnist as script
import sequential_mnist_model
from common.datasets import mnist
from keras import layers
from scripts import plans

import keras_ln


@pytest.mark.parametrize("norm", script.KINDS)
def test_gates_start_with_the_identity(norm):
    model = sequential_mnist_model.build_model(norm)
    (lstm,) = (x for x in model.layers if isinstance(x, keras.layers.RNN))
    recurrent = keras.ops.convert_to_numpy(lstm.cell.recurrent_kernel)
    for gate in np.split(recurrent, 4, axis=1):
        np.testing.assert_array_equal(gate, np.eye(100))
    noise = [x for x in model.layers if isinstance(x, layers.GaussianNoise)]
    assert [x.stddev for x in noise] == ([0.1] if norm == "batch" else [])


@pytest.mark.parametrize("norm", script.KINDS)
def test_a_step_sees_a_pixel_and_what_it_lacks(norm):
    model = sequential_mnist_model.build_model(norm, units=3, steps=5)
    (lstm,) = (x for x in model.layers if isinstance(x, keras.layers.RNN))
    x = np.random.default_rng(0).random((2, 5, 1), np.float32)
    # Of batch statistics as they start, and without noise.
    seen = keras.Model(model.input, lstm.input)(x)
    if isinstance(seen, (list, tuple)):
        seen = seen[0]
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(seen), np.concatenate([x, 1 - x], axis=-1)
    )


def test_the_noise_is_for_training_alone():
    model = sequential_mnist_model.build_model("batch", units=3, steps=4)
    x = np.zeros((2, 4, 1), "float32")
    one, two = model(x, training=False), model(x)
    np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (one, two)))
    # Rows of equal pixels differ by their noise, which the batch's statistics
    # blow up, as those of no noise could not.
    one, two = keras.ops.convert_to_numpy(model(x, training=True))
    assert np.abs(one - two).max() > 1e-3


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_batches_are_averaged_anew_before_an_evaluation(norm, tmp_path):
    (plan,) = plans(script.EXPERIMENT, "--smoke", "--norm", norm)
    plan.epochs = 1
    digits = mnist.small_digits().first(256, 64)
    task = script.EXPERIMENT.make_task(plan, digits)
    history = task.fit(tmp_path, plan)
    model = task.model
    model.jit_compile = False  # XLA draws other numbers.
    before = model.get_weights()
    for layer in model.layers:
        layer.averaging = True  # Of the noise alone.
    keras_ln.reestimate_statistics(model, task.batches(0), steps=4)
    for layer in model.layers:
        layer.averaging = False
    for one, two in zip(model.get_weights(), before, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    # What is saved after the evaluation has been evaluated.
    saved = keras.saving.load_model(tmp_path / "model.keras")
    found = saved.evaluate(task.validation_data, verbose=0)[0]
    assert found == pytest.approx(history.rows[-1]["val_loss"], rel=1e-4)


def test_black_pixels_do_not_make_the_gradient_infinite():
    # From an initial h of zero it would overflow after some ten of them.
    model = sequential_mnist_model.build_model("layer", units=8, steps=40)
    model.compile(
        "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    x = np.zeros((4, 40, 1), "float32")
    x[:, -1] = 0.5
    model.fit(x, np.arange(4), verbose=0)
    for weight in model.get_weights():
        assert np.isfinite(weight).all()


def test_pixels_keep_their_labels_in_a_fixed_order(monkeypatch):
    order = script.order_of_pixels("permuted", 64)
    assert sorted(order) == list(range(64)) != list(order)
    np.testing.assert_array_equal(order, script.order_of_pixels("permuted", 64))
    np.testing.assert_array_equal(
        script.order_of_pixels("natural", 64), np.arange(64)
    )
    (plan,) = plans(script.EXPERIMENT, "--smoke", "--order", "permuted")
    digits = mnist.small_digits().first(128, 128)
    task = script.EXPERIMENT.make_task(plan, digits)
    ((x, y),) = task.validation_data.as_numpy_iterator()
    np.testing.assert_array_equal(
        x[..., 0], digits.test_images.reshape(-1, 64)[:, order]
    )
    np.testing.assert_array_equal(y, digits.test_labels)
    x, y = next(task.batches(0).as_numpy_iterator())
    known = {
        bytes(image.reshape(-1)[order]): label
        for image, label in zip(*digits[:2], strict=True)
    }
    assert [known[bytes(row)] for row in x] == list(y)


def _load(*flags):
    (plan,) = plans(script.EXPERIMENT, *flags)
    return script.EXPERIMENT.load_data(plan)


def test_pixels_can_be_averaged():
    whole, small = _load(), _load("--pool", "2")
    assert small.train_images.shape == (1408, 4, 4)
    for big, pooled in zip(whole[::2], small[::2], strict=True):
        for row, column in ((0, 0), (1, 3), (3, 2)):
            square = big[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            np.testing.assert_allclose(
                pooled[:, row, column], square.mean(axis=(1, 2)), atol=1e-6
            )


def test_the_first_examples_alone():
    whole, some = _load(), _load("--examples", "100")
    np.testing.assert_array_equal(some.train_images, whole.train_images[:100])
    assert len(some.train_labels) == 100 and len(some.test_labels) == 384
