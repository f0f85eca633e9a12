"""COCO's captions, and features that are computed once and kept."""

from argparse import Namespace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from common.datasets import captions, coco, published
from common.errors import InputError


def _load(data, data_dir):
    return captions.load(Namespace(data=data, length=30, data_dir=data_dir))


def _examples(split, count=2):
    """What `coco_captions` yields."""
    random = np.random.default_rng(len(split))
    for n in range(count):
        yield {
            "image": random.integers(256, size=(30, 40 + n, 3), dtype=np.uint8),
            "image/filename": f"COCO_{split}_{n}.jpg".encode(),
            "captions": {
                "text": [
                    f"A man's {split} #{n}, {k}!".encode() for k in range(6)
                ]
            },
        }


def _as_dataset(builder, split, **kwargs):
    # Those features that are looked at, as the data set declares them.
    declared = builder.info.features.get_tensor_info()
    text = declared["captions"]["text"]
    signature = {
        "image": tf.TensorSpec(declared["image"].shape, tf.uint8),
        "image/filename": tf.TensorSpec((), tf.string),
        "captions": {"text": tf.TensorSpec(text.shape, tf.string)},
    }
    return tf.data.Dataset.from_generator(
        lambda: _examples(split), output_signature=signature
    )


@pytest.fixture
def mocked_coco(monkeypatch, tmp_path):
    """COCO without its files and VGG19 without its weights."""
    computed = []

    def mean_colour():
        def network(images):
            computed.append(images.shape)
            return images.mean(axis=(1, 2))

        return network

    monkeypatch.setattr(coco, "vgg19", mean_colour)
    monkeypatch.setattr(published, "_reachable", lambda source: True)
    with tfds.testing.mock_data(as_dataset_fn=_as_dataset):
        yield computed


def test_coco_is_computed_once_and_kept(mocked_coco, tmp_path, capsys):
    data = _load("tfds", data_dir=str(tmp_path))
    assert mocked_coco == 8 * [(10, 224, 224, 3)]
    assert "coco_captions_vgg19_fc7/restval.npz" in capsys.readouterr().out
    # What neither validates nor tests is for training.
    assert [len(part.features) for part in data[:3]] == [4, 2, 2]
    row = [data.vocabulary[number] for number in data.train.words[11]]
    assert row == ["a", "man's", "restval", "0", "1", "<end>"]
    (example, _) = _examples("val")
    colour = coco.crops(example["image"]).mean(axis=(0, 1, 2))
    np.testing.assert_allclose(
        data.dev.features[0], colour / np.linalg.norm(colour), rtol=1e-4
    )
    mocked_coco.clear()
    again = _load("tfds", data_dir=str(tmp_path))
    assert not mocked_coco
    for one, two in zip(data[:3], again[:3], strict=True):
        np.testing.assert_array_equal(one.words, two.words)
        np.testing.assert_array_equal(one.features, two.features)


def test_features_are_kept_whole_or_not_at_all(mocked_coco, tmp_path):
    path = tmp_path / "coco" / "val.npz"

    def dies():
        yield from _examples("val")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coco.keep(path, dies(), coco.vgg19())
    assert not path.parent.exists()
    few = [*_examples("val")]
    few[1]["captions"]["text"] = few[1]["captions"]["text"][:4]
    with pytest.raises(InputError, match="COCO_val_1.jpg has 4 captions, exp"):
        coco.keep(path, few, coco.vgg19())
    few = [*_examples("val")]
    few[0]["captions"]["text"][2] = b"..."
    with pytest.raises(InputError, match="val.npz: captions: caption 3 is emp"):
        coco.keep(path, few, coco.vgg19())
    assert not path.parent.exists()


def test_a_folder_that_cannot_be_made_is_told(mocked_coco, tmp_path):
    (tmp_path / "coco").write_text("a file")
    with pytest.raises(InputError, match="coco/val.npz cannot be written"):
        coco.keep(tmp_path / "coco" / "val.npz", _examples("val"), coco.vgg19())


def _cut(path):
    path.write_bytes(path.read_bytes()[:200])


def _of_another_network(path):
    with np.load(path) as file:
        np.savez(path, **{**file, "network": "ResNet50"})


def _with_a_caption_less(path):
    with np.load(path) as file:
        np.savez(path, **{**file, "captions": file["captions"][20:]})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_cut, "val.npz cannot be read .* remove the file"),
        (_of_another_network, "are of ResNet50, expected VGG19"),
        (_with_a_caption_less, "val.npz: captions should have 5 .* found 9"),
    ],
)
def test_kept_features_are_checked(mocked_coco, tmp_path, spoil, message):
    _load("tfds", data_dir=str(tmp_path))
    spoil(tmp_path / "coco_captions_vgg19_fc7" / "val.npz")
    with pytest.raises(InputError, match=message):
        _load("tfds", data_dir=str(tmp_path))


def test_coco_out_of_reach(monkeypatch, tmp_path):
    monkeypatch.setattr(published, "_reachable", lambda source: False)
    with pytest.raises(InputError, match="coco_captions is not prepared in"):
        _load("tfds", data_dir=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_ten_crops():
    # The value is the place: x in the first channel, y in the second.
    y, x = np.indices((256, 300))
    image = np.stack([x % 256, y, x // 256], axis=-1).astype(np.uint8)
    found = coco.crops(image)
    assert found.shape == (10, 224, 224, 3) and found.dtype == np.float32
    corners = [tuple(crop[0, 0, :2]) for crop in found[:5]]
    assert corners == [(0, 0), (76, 0), (0, 32), (76, 32), (38, 16)]
    np.testing.assert_array_equal(found[5:], found[:5, :, ::-1])
    # The shorter side is made 256.
    narrow = coco.crops(np.full((900, 300, 3), 7, np.uint8))
    assert (narrow == 7).all()


def test_the_weights_out_of_reach(monkeypatch):
    def refuse(weights):
        raise ValueError("URL fetch failure\non line 2")

    monkeypatch.setattr(coco.keras.applications, "VGG19", refuse)
    with pytest.raises(InputError, match="VGG19 cannot be loaded: URL fetch f"):
        coco.vgg19()


@pytest.mark.full
def test_the_layer_of_vgg19():
    images = np.random.default_rng(3).integers(256, size=(1, 224, 224, 3))
    before = images.copy()
    found = coco.vgg19(weights=None)(images.astype("float32"))
    assert found.shape == (1, 4096) and (found >= 0).all() and found.any()
    np.testing.assert_array_equal(images, before)
