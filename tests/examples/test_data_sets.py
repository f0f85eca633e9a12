"""Every reader reads what is whole, and refuses what is not."""

import os
import socket

import data_sets
import numpy as np
import packaged_data
import pytest
import tensorflow_datasets as tfds
import text_sets
from common.datasets import books, captions, cloze, mnist, published, strokes
from common.errors import InputError
from data_sets import args, change, digest

READERS = data_sets.READERS | text_sets.READERS | packaged_data.READERS


def _cases(kind):
    """Of all readers, (reader, file, change, what is expected)."""
    return [
        pytest.param(reader, file, how, expected, id=f"{name}-{file}-{number}")
        for name, reader in READERS.items()
        for file, changes in getattr(reader, kind).items()
        for number, (how, expected) in enumerate(changes.items())
    ]


@pytest.mark.parametrize("name", READERS)
def test_what_is_read(tmp_path, name):
    reader = READERS[name]
    reader.make(tmp_path)
    assert digest(reader.read(tmp_path)) == reader.digest


@pytest.mark.parametrize(("reader", "file", "how", "expected"), _cases("good"))
def test_what_is_read_of_others(tmp_path, reader, file, how, expected):
    reader.make(tmp_path)
    change(tmp_path / file, how)
    assert digest(reader.read(tmp_path)) == (expected or reader.digest)


@pytest.mark.parametrize(("reader", "file", "how", "words"), _cases("faults"))
def test_faults_are_told(tmp_path, monkeypatch, reader, file, how, words):
    monkeypatch.delenv("EXECUTED", raising=False)
    reader.make(tmp_path)
    path = tmp_path / file
    change(path, how)
    with pytest.raises(InputError, match=words) as error:
        reader.read(tmp_path)
    assert "EXECUTED" not in os.environ
    told = str(error.value)
    assert path.name in told or "there is no" in told, told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (captions.load, "expected a folder with train_ims"),
        (strokes.load, "expected a folder with lineStrokes"),
        (cloze.load, "the folder questions of CNN .* received"),
    ],
)
def test_a_file_is_no_folder(tmp_path, load, words):
    (tmp_path / "file").write_text("text")
    with pytest.raises(InputError, match=f"--data: .*{words}.*file$"):
        load(args(tmp_path / "file"))


def test_books_are_text_files(tmp_path):
    (tmp_path / "book.pdf").write_bytes(b"")
    with pytest.raises(InputError, match="has no .txt files"):
        books.load(args(tmp_path))
    with pytest.raises(InputError, match="the paper's books are not published"):
        books.load(args("tfds"))


def test_no_question_may_be_left(tmp_path, capsys):
    text_sets.CLOZE.make(tmp_path)
    cloze.load(args(tmp_path))
    # Of the third question the answer is in the fifth sentence.
    assert capsys.readouterr().out == (
        "Data: 2 questions for training and 1 for validation; without 1 whose "
        "answer is not in the cut passage, and 0 with more than 9 entities.\n"
    )
    cloze.load(args(tmp_path, entities=2))
    assert "and 1 with more than 2 entities." in capsys.readouterr().out
    with pytest.raises(InputError, match="--sentences 4 and --length 1 of its"):
        cloze.load(args(tmp_path, length=1))
    with pytest.raises(InputError, match="and at most --entities 1$"):
        cloze.load(args(tmp_path, entities=1))


def test_captions_of_another_language_and_features_of_another_width(tmp_path):
    data_sets.CAPTIONS.make(tmp_path)
    (tmp_path / "dev_caps.txt").write_text("zwei Hunde laufen\n" * 10)
    with pytest.raises(InputError, match="none of the words of the dev capti"):
        captions.load(args(tmp_path))
    path = tmp_path / "dev_ims.npy"
    np.save(path, np.load(path)[:, :4])
    with pytest.raises(InputError, match="found 6 in train, 4 in dev, 6 in te"):
        captions.load(args(tmp_path))


def test_what_tensorflow_datasets_gives(monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), np.uint8)

    def load(name, splits, data_dir):
        assert (name, data_dir) == ("cifar10", "there")
        labels = {"train": [3, 9, 2], "test": [0, 1, 4]}
        return [
            {"image": pixels, "label": np.int64(labels[split])}
            for split in splits
        ]

    monkeypatch.setattr(published, "load", load)
    how = {"data_dir": "there", "data_set": "cifar10"}
    train, validation, test = mnist.parts(args("tfds", **how))
    np.testing.assert_array_equal(train[0], np.float32(pixels[:2]) / 255)
    assert test[0].shape == (3, 4, 4, 3) and test[1].dtype == np.int32
    assert [list(y) for _, y in (train, validation, test)] == (
        [[3, 9], [2], [0, 1, 4]]
    )
    # Fewer to train with, the same to choose with.
    some = mnist.parts(args("tfds", **how, examples=1))
    assert [list(y) for _, y in some] == [[3], [2], [0, 1, 4]]
    with pytest.raises(InputError, match="3 is more than the 2 training ima"):
        mnist.parts(args("tfds", **how, examples=3))
    with pytest.raises(InputError, match="expected embedded or tfds, receive"):
        mnist.parts(args("a folder", **how))


def test_pixels_are_drawn_with_their_values(monkeypatch):
    grey = np.random.default_rng(1).integers(0, 256, (900, 2, 2, 1), np.uint8)
    split = {"image": grey, "label": np.zeros(900)}
    monkeypatch.setattr(published, "load", lambda *_: 2 * [split])
    found = mnist.binarized(args("tfds", data_set="mnist"))
    assert [len(x) for x in found] == [819, 81, 900]
    assert {*found[0].ravel()} == {0, 1}
    # The error of a mean of 3,600 differences is 0.007.
    assert abs(found[2].mean() - grey.mean() / 255) < 0.03
    monkeypatch.setattr(published, "load", lambda *_: 3 * [split])
    found = mnist.binarized(args("tfds", data_set="binarized_mnist"))
    np.testing.assert_array_equal(found[1], grey[..., 0] > 0)


def test_digits_are_pooled():
    images = np.random.default_rng(0).random((5, 8, 8), np.float32)
    small = mnist.pooled(images, 2)
    for row, column in ((0, 0), (1, 3), (3, 2)):
        square = images[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        expected = square.mean(axis=(1, 2))
        np.testing.assert_allclose(small[:, row, column], expected, atol=1e-6)


def test_no_network_is_told_at_once(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(
        InputError, match="mnist is not prep.*cannot be reached"
    ):
        published.load("mnist", ["train"], str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_wrong_archives_are_told(tmp_path):
    manual = tmp_path / "downloads" / "manual"
    manual.mkdir(parents=True)
    for part in ("train", "t10k"):
        for name in ("images-idx3", "labels-idx1"):
            path = manual / f"{part}-{name}-ubyte.gz"
            path.write_bytes(b"not what was published")
    with pytest.raises(InputError, match="cannot be prepared.*wrong checksum"):
        published.load("mnist", ["train"], str(tmp_path))


def test_data_sets_are_prepared_once(tmp_path, monkeypatch):
    builder = tfds.testing.DummyMnist
    monkeypatch.setitem(published._SOURCES, "dummy", "http://localhost:9")
    monkeypatch.setattr(published, "_reachable", lambda source: True)
    monkeypatch.setattr(
        tfds, "builder", lambda name, data_dir: builder(data_dir=data_dir)
    )

    def load():
        return published.load("dummy", ["train[:5]", "test"], str(tmp_path))

    train, test = load()
    assert train["image"].shape == (5, 28, 28, 1)
    assert test["label"].shape == (20,)
    monkeypatch.delattr(builder, "_generate_examples")
    np.testing.assert_array_equal(load()[0]["image"], train["image"])


@pytest.mark.parametrize("load", [captions.load, cloze.load, strokes.load])
def test_what_is_given_on_request_is_named(load):
    with pytest.raises(InputError, match="https://.* received tfds"):
        load(args("tfds"))


def test_strokes_that_never_move_are_refused(monkeypatch):
    lines = 9 * [("still", np.ones((3, 3), np.float32))]
    monkeypatch.setattr(strokes, "generate", lambda *_: (lines, lines))
    with pytest.raises(InputError, match="has only equal steps"):
        strokes.load(args("embedded"))
