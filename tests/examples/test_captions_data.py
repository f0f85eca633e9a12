"""Captions of images: the published files, batches, embedded data."""

from argparse import Namespace

import numpy as np
import pytest
from common.datasets import captions
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


@pytest.mark.parametrize(
    ("dtype", "size"),
    # No denormals: frameworks may have the processor take them for zero.
    [("f2", 1e4), ("f4", 1e25), ("f4", 1e-30), ("f8", 1e60), ("f8", 1e-200)],
)
def test_features_of_any_size_are_scaled_to_length_one(folder, dtype, size):
    path = folder / "train_ims.npy"
    features = np.array([[3, 0, -4], [0, 0, 0], [2, 2, 1]]) * np.float64(size)
    for split, count in COUNTS.items():
        np.save(folder / f"{split}_ims.npy", features[:count].astype(dtype))
    assert np.load(path).dtype == dtype
    found = _load(folder).train.features
    assert found.dtype == np.float32
    expected = [[0.6, 0, -0.8], [0, 0, 0], [2 / 3, 2 / 3, 1 / 3]]
    # float16 has three digits.
    np.testing.assert_allclose(found, expected, atol=1e-3)


def _text(change):
    def spoil(path):
        path.write_text(change(path.read_text()))

    return spoil


def _array(change):
    def spoil(path):
        np.save(path, change(np.load(path)))

    return spoil


def _archive(path):
    other = path.with_suffix(".npz")
    np.savez(other, features=np.load(path))
    other.rename(path)


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
            _array(lambda x: np.longdouble(x) * np.longdouble("1e4000")),
            "dev_ims.npy: image 1 has a feature that is not finite",
        ),
        (
            "dev_caps.txt",
            lambda p: p.write_text("zwei Hunde laufen\n" * 10),
            "none of the words of the dev captions is in the train captions",
        ),
        (
            "dev_ims.npy",
            _archive,
            "dev_ims.npy is no whole .npy file",
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


def test_any_damage_to_a_header_is_told(folder):
    """NumPy leaves some of it to Python's parser and its errors."""
    path = folder / "dev_ims.npy"
    whole = path.read_bytes()
    header = whole.index(b"\n")
    errors = 0
    for byte in range(header):
        for bit in range(0, 8, 3):
            spoilt = bytearray(whole)
            spoilt[byte] ^= 1 << bit
            path.write_bytes(spoilt)
            try:
                captions.read_part(folder, "dev")
            except InputError as error:
                assert "dev_ims.npy" in str(error) and "\n" not in str(error)
                errors += 1
    assert errors > 250


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


def test_evaluation_is_in_order_and_begins_again(folder):
    split = _load(folder).train
    again = [*range(15), 0, 1]
    words, features, images = zip(
        *((w, f, i) for (w, f), i in split.in_order(4, 17)), strict=True
    )
    assert [len(part) for part in words] == [4, 4, 4, 4, 1]
    np.testing.assert_array_equal(np.concatenate(words), split.words[again])
    images = np.concatenate(images)
    np.testing.assert_array_equal(images, np.repeat(np.arange(3), 5)[again])
    np.testing.assert_array_equal(
        np.concatenate(features), split.features[images]
    )


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
