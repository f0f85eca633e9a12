"""Captions of images: scenes, the published files, and COCO's features."""

import re
from argparse import Namespace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from common.datasets import captions, coco, published, scenes
from common.errors import InputError

SENTENCES = [
    f"a {colour} {thing} on the {place} ."
    for thing in ("cat", "dog", "bus")
    for colour, place in zip(
        ("red", "black", "white", "old", "big"),
        ("sofa", "street", "street", "sofa", "street"),
        strict=True,
    )
]
COUNTS = {"train": 3, "dev": 2, "test": 1}


@pytest.fixture
def folder(tmp_path):
    """The files as Vendrov et al. published them."""
    random = np.random.default_rng(0)
    for split, count in COUNTS.items():
        features = random.random((count, 6), np.float32)
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        np.save(tmp_path / f"{split}_ims.npy", features)
        lines = "".join(f"{line}\n" for line in SENTENCES[: 5 * count])
        (tmp_path / f"{split}_caps.txt").write_text(lines)
    return tmp_path


def _load(data, length=30, data_dir=None):
    return captions.load(
        Namespace(data=str(data), length=length, data_dir=data_dir)
    )


def test_reads_the_published_format(folder):
    data = _load(folder)
    assert not data.growing
    for split, count in COUNTS.items():
        part = getattr(data, split)
        assert part.words.shape == (5 * count, 8)
        assert part.words.dtype == np.int32
        np.testing.assert_allclose(
            part.features, np.load(folder / f"{split}_ims.npy"), rtol=1e-6
        )
        for row, sentence in zip(part.words, SENTENCES, strict=False):
            words = [data.vocabulary[number] for number in row]
            assert words == [*sentence.split(), "<end>"]
    # Frequent words first, those of equal frequency by the alphabet.
    assert data.vocabulary[:8] == (
        *("<padding>", "<end>", "<unknown>"),
        *(".", "a", "on", "the", "street"),
    )


def test_words_that_training_lacks_are_unknown(folder):
    path = folder / "test_caps.txt"
    path.write_text(path.read_text().replace("red cat", "pink cat"))
    data = _load(folder)
    row = [data.vocabulary[number] for number in data.test.words[0]]
    assert row[:3] == ["a", "<unknown>", "cat"]


def test_long_captions_are_cut_and_short_ones_filled(folder):
    path = folder / "dev_caps.txt"
    path.write_text(path.read_text().replace(SENTENCES[3], "cat"))
    data = _load(folder, length=4)
    assert data.train.words.shape == (15, 5)
    # Both the cut and the short ones have their end mark.
    assert (data.train.words[:, 4] == captions.END).all()
    assert list(data.dev.words[3, 1:]) == [captions.END, 0, 0, 0]
    # The longest of all parts gives the length of all.
    path.write_text(path.read_text().replace("cat", "cat and cat and cat"))
    found = _load(folder)
    assert [part.words.shape[1] for part in found[:3]] == [12, 12, 12]


def test_features_are_scaled_to_length_one(folder):
    before = _load(folder).train.features
    path = folder / "train_ims.npy"
    features = 7 * np.load(path).astype("float64")
    features[2] = 0
    np.save(path, features)
    found = _load(folder).train.features
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[:2], before[:2], rtol=1e-6)
    assert not found[2].any()


def _text(change):
    def spoil(path):
        path.write_text(change(path.read_text()))

    return spoil


def _array(change):
    def spoil(path):
        np.save(path, change(np.load(path)))

    return spoil


def _nan(features):
    features[1, 4] = np.nan
    return features


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("dev_ims.npy", lambda p: p.unlink(), "dev_ims.npy does not exist"),
        ("test_caps.txt", lambda p: p.unlink(), "test_caps.txt does not exist"),
        (
            "train_caps.txt",
            _text(lambda t: t + "one more\n"),
            "train_caps.txt should have 5 captions for each of the 3 images "
            ".*train_ims.npy, found 16",
        ),
        (
            "train_ims.npy",
            _array(lambda x: x[:2]),
            "for each of the 2 images in .*train_ims.npy, found 15",
        ),
        (
            "dev_ims.npy",
            _array(lambda x: x[:, :4]),
            "equally many features, found 6 in train, 4 in dev, 6 in test",
        ),
        (
            "dev_caps.txt",
            _text(lambda t: t.replace(SENTENCES[6], " ")),
            "dev_caps.txt: caption 7 is empty",
        ),
        ("test_caps.txt", _text(lambda t: ""), "captions .*, found 1"),
        (
            "dev_caps.txt",
            lambda p: p.write_bytes(p.read_bytes() + b"caf\xe9\n"),
            "dev_caps.txt is not in UTF-8",
        ),
        (
            "dev_ims.npy",
            _array(_nan),
            "dev_ims.npy: image 2 has a feature that is not finite",
        ),
        (
            "dev_ims.npy",
            _array(lambda x: x[0]),
            r"a row of features per image, found the shape \(6,\) of float32",
        ),
        ("dev_ims.npy", _array(lambda x: x[:0]), r"shape \(0, 6\)"),
        ("dev_ims.npy", _array(np.int64), r"\(2, 6\) of int64"),
        (
            "dev_ims.npy",
            lambda p: p.write_bytes(p.read_bytes()[:-9]),
            "dev_ims.npy is no whole .npy file",
        ),
        ("dev_ims.npy", lambda p: p.write_bytes(b""), "no whole .npy file"),
        (
            "dev_ims.npy",
            lambda p: np.save(p, np.array([{}]), allow_pickle=True),
            "no whole .npy file",
        ),
    ],
)
def test_broken_files_are_named(folder, name, spoil, message):
    spoil(folder / name)
    with pytest.raises(InputError, match=message):
        _load(folder)


def test_a_file_is_no_folder(folder):
    with pytest.raises(InputError, match="expected a folder with train_ims"):
        _load(folder / "train_ims.npy")


def test_batches_hold_different_images(folder):
    split = _load(folder).train

    def batches(seed, update, count):
        return [
            (words.numpy(), features.numpy(), images.numpy())
            for (words, features), images in split.shuffled(
                2, seed, update
            ).take(count)
        ]

    seen = set()
    for words, features, images in batches(1, 0, 60):
        assert len(set(images)) == 2
        np.testing.assert_array_equal(features, split.features[images])
        for row, image in zip(words, images, strict=True):
            (caption,) = np.flatnonzero((split.words == row).all(axis=1))
            assert caption // 5 == image
            seen.add(caption)
    assert seen == set(range(15))
    # A function of seed and update, as a resumed run needs it.
    for one, two in zip(batches(1, 7, 5), batches(1, 0, 12)[7:], strict=True):
        np.testing.assert_array_equal(one[0], two[0])
    assert any(
        (one[2] != two[2]).any()
        for one, two in zip(batches(1, 0, 9), batches(2, 0, 9), strict=True)
    )


def test_evaluation_is_in_order(folder):
    split = _load(folder).train
    words, features, images = zip(
        *((w, f, i) for (w, f), i in split.in_order(4)), strict=True
    )
    assert [len(part) for part in words] == [4, 4, 4, 3]
    np.testing.assert_array_equal(np.concatenate(words), split.words)
    images = np.concatenate(images)
    np.testing.assert_array_equal(images, np.repeat(np.arange(3), 5))
    np.testing.assert_array_equal(
        np.concatenate(features), split.features[images]
    )


def _facts(sentence):
    """What a caption says: (which object, which quality)."""
    parts = re.split("(left of|right of|above|below)", sentence)
    facts = {("place", parts[1])} if len(parts) > 1 else set()
    for which, words in enumerate(parts[::2]):
        facts |= {(which, word) for word in words.split()[1:]}
    return facts


def test_captions_of_a_scene_grow():
    random = np.random.default_rng(0)
    texts, features = scenes.generate(40, random)
    assert len(texts) == 200 and features.shape == (40, scenes.FEATURES)
    assert features.dtype == np.float32 and np.isfinite(features).all()
    for n in range(40):
        facts = [_facts(text) for text in texts[5 * n : 5 * n + 5]]
        for shorter, longer in zip(facts, facts[1:], strict=False):
            assert shorter < longer
        assert len(facts[-1]) == 7
    # Colour, size and the other object come in any order.
    assert {len(text.split()) for text in texts[::5]} >= {3, 5}
    again, same = scenes.generate(40, np.random.default_rng(0))
    assert again == texts
    np.testing.assert_array_equal(same, features)


def test_a_caption_is_true_of_its_picture():
    random = np.random.default_rng(1)
    scene = scenes.Scene(
        scenes.Thing("square", "red", "big"),
        "above",
        scenes.Thing("ring", "blue", "small"),
    )
    assert scenes.describe(scene, random)[-1] == (
        "a big red square above a small blue ring"
    )
    picture = scenes.draw(scene, random)
    red, blue = (
        np.linalg.norm(picture - scenes.COLOURS[name], axis=-1) < 0.3
        for name in ("red", "blue")
    )
    rows = np.arange(scenes.SIDE)[:, None]
    assert rows[np.flatnonzero(red.any(axis=1))].max() < scenes.SIDE / 2
    assert rows[np.flatnonzero(blue.any(axis=1))].min() >= scenes.SIDE / 2 - 1
    assert red.sum() > 2 * blue.sum() > 0
    # The picture, as its features, depends on every fact.
    plain = scenes.features(picture[None])
    for name, values in (
        ("shape", scenes.SHAPES),
        ("colour", scenes.COLOURS),
        ("size", scenes.SIZES),
    ):
        for value in {*values} - {getattr(scene.first, name)}:
            other = scene._replace(first=scene.first._replace(**{name: value}))
            random = np.random.default_rng(1)
            random.permutation(3)
            changed = scenes.features(scenes.draw(other, random)[None])
            assert np.abs(changed - plain).max() > 0.05, value


def test_the_network_is_a_convolution():
    pictures = np.random.default_rng(2).random((3, 24, 24, 3), np.float32)
    found = scenes.features(pictures, chunk=2).reshape(3, 5, 5, 64)
    filters = np.random.default_rng(0).normal(size=(75, 64)) / np.sqrt(75)
    # The means over a field of four by four places.
    expected = np.zeros(64)
    for y in range(4, 8):
        for x in range(12, 16):
            window = pictures[2, y : y + 5, x : x + 5].transpose(2, 0, 1)
            expected += np.maximum(window.reshape(-1) @ filters, 0) / 16
    np.testing.assert_allclose(found[2, 1, 3], expected, rtol=1e-4)


def test_embedded_scenes(monkeypatch):
    monkeypatch.setattr(captions, "SMALL_COUNTS", (30, 10, 20))
    data = _load("embedded")
    assert data.growing
    for split, count in zip(data[:3], (30, 10, 20), strict=True):
        assert split.words.shape[0] == 5 * count
        np.testing.assert_allclose(
            np.linalg.norm(split.features, axis=1), 1, rtol=1e-5
        )
    assert not set(map(bytes, data.train.features)) & set(
        map(bytes, data.test.features)
    )
    assert captions.UNKNOWN not in data.test.words


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
        (_of_another_network, "are those of ResNet50, expected VGG19"),
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


def test_the_layer_of_vgg19():
    images = np.random.default_rng(3).integers(256, size=(1, 224, 224, 3))
    before = images.copy()
    found = coco.vgg19(weights=None)(images.astype("float32"))
    assert found.shape == (1, 4096) and (found >= 0).all() and found.any()
    np.testing.assert_array_equal(images, before)
