"""The experiment of section 6.7: its models and what it writes."""

import gzip
import struct

import convolutional_networks as script
import convolutional_networks_model
import numpy as np
import pytest
from common.datasets import mnist, published
from keras import layers
from scripts import plans

import keras_ln


def _sizes(norm):
    model = convolutional_networks_model.build_model(
        norm, units=4, image_shape=(8, 8, 1)
    )
    kinds = (keras_ln.LayerNormalization, keras_ln.BatchNormalization)
    return model, [
        tuple(layer.gamma.shape)
        for layer in model.layers
        if isinstance(layer, kinds)
    ]


@pytest.mark.parametrize("norm", script.KINDS)
def test_what_is_normalised(norm):
    model, sizes = _sizes(norm)
    assert (
        sizes
        == {
            "none": [],
            # One gain per unit, one per channel.
            "layer": [(8, 8, 4), (8, 8, 4), (4, 4, 8), (4, 4, 8), (32,)],
            "layer-channels": [(4,), (4,), (8,), (8,), (32,)],
            "batch": [(4,), (4,), (8,), (8,), (32,)],
        }[norm]
    )
    linear = [x for x in model.layers if hasattr(x, "use_bias")]
    assert [type(x) for x in linear] == 4 * [layers.Conv2D] + 2 * [layers.Dense]
    assert [x.use_bias for x in linear] == 5 * [norm == "none"] + [True]
    assert model.output_shape == (None, 10)


def test_mnists_files_are_pictures_of_one_channel(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8), np.uint8)
    for start, count in ((0, 30), (2, 20)):
        for name, magic, array in (
            (mnist.ARCHIVES[start], 2051, images[:count]),
            (mnist.ARCHIVES[start + 1], 2049, np.uint8(np.arange(count) % 10)),
        ):
            header = struct.pack(f">{1 + array.ndim}I", magic, *array.shape)
            (tmp_path / name).write_bytes(
                gzip.compress(header + array.tobytes())
            )
    args = ["--data", str(tmp_path), "--examples", "25"]
    (plan,) = plans(script.EXPERIMENT, *args)
    data = script.EXPERIMENT.load_data(plan)
    np.testing.assert_array_equal(
        data.train_images[..., 0], np.float32(images[:25]) / 255
    )
    assert data.test_images.shape == (20, 8, 8, 1)
    described = script.EXPERIMENT.describe(plan, data)
    assert described == (
        f"{tmp_path.name}, 8 x 8, 25 training and 20 test images"
    )


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_the_data_set_of_tfds_is_the_one_named(monkeypatch, name):
    asked = []

    def load(data_set, splits, data_dir, archives, source):
        asked.append(data_set)
        assert source.startswith("http") and name[:7] in source
        part = {"image": np.zeros((3, 8, 8, 1)), "label": np.arange(3)}
        return [part, part]

    monkeypatch.setattr(published, "load", load)
    flags = ("--data", "tfds", "--data-set", name)
    (plan,) = plans(script.EXPERIMENT, *flags)
    data = script.EXPERIMENT.load_data(plan)
    assert asked == [name] and data.train_images.shape == (3, 8, 8, 1)
