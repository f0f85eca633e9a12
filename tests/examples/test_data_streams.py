"""Batches of data: what is in them, and in which order."""

import itertools

import keras
import numpy as np
import pytest
from common import runs
from common.datasets import books, captions, cloze


def _books(count=700, length=9):
    """Sentences of all lengths, whose words tell where they stand."""
    lengths = np.random.default_rng(1).integers(1, length + 2, count)
    rows = np.zeros((count, length + 1), np.uint16)
    for number, (row, size) in enumerate(zip(rows, lengths, strict=True)):
        row[:size] = 3 + number
    middle = np.arange(1, count - 1)
    words = tuple(map(str, range(3 + count)))
    return books.Books(words, rows, middle[:-20], middle[-20:])


def _captions(count=7):
    features = np.eye(count, 8, dtype=np.float32)
    words = np.arange(15 * count, dtype=np.int32).reshape(5 * count, 3)
    return captions.Split(words, features)


def _cloze(count=40, markers=5):
    """Questions of one form: marker, word, marker, padding."""
    random = np.random.default_rng(0)
    pairs = np.array([random.permutation(markers)[:2] for _ in range(count)])
    passages = np.zeros((count, 4), np.int32)
    passages[:, [0, 2]] = pairs + cloze.FIRST_MARKER
    passages[:, 1] = 8 + np.arange(count)  # Tells which question it is.
    queries = np.stack([passages[:, 2], np.full(count, 2)], 1).astype(np.int32)
    questions = cloze.Questions(passages, queries, passages[:, 0].copy())
    return cloze.Cloze(questions, questions, markers, [""] * 50)


TEXT, SPLIT, QUESTIONS = _books(), _captions(), _cloze()
UPDATES = sum(len(own) // 8 for own in books.groups(TEXT, 8))


def _of_books(seed, first):
    return books.batches(TEXT, 8, seed, UPDATES, first)


def _of_captions(seed, first):
    return SPLIT.batches(3, seed, first)


def _of_questions(seed, first):
    return cloze.batches(QUESTIONS.train, QUESTIONS.markers, 8, seed, first)


def _of_rows(seed, first):
    return runs.shuffled(12, 3, seed, first)


@pytest.mark.parametrize(
    ("stream", "updates"),
    [
        (_of_books, UPDATES),
        (_of_captions, 2),
        (_of_questions, 5),
        (_of_rows, 4),
    ],
)
def test_they_follow_seed_and_step(stream, updates):
    def batches(seed, first, count):
        return [
            b"".join(part.tobytes() for part in keras.tree.flatten(own))
            for own in itertools.islice(stream(seed, first), count)
        ]

    whole = batches(0, 0, 2 * updates + 7)
    # Every pass is shuffled anew.
    assert sorted(whole[:updates]) != sorted(whole[updates : 2 * updates])
    for first in (1, updates - 1, updates, updates + 3):
        assert batches(0, first, 4) == whole[first : first + 4]
    assert batches(1, 0, updates) != whole[:updates]


def test_sentences_of_a_batch_are_equally_long():
    lengths = np.count_nonzero(TEXT.sentences, axis=1)
    counts = np.bincount(lengths[TEXT.train])
    passes = [], []
    for number, ((current, before, after), *_) in enumerate(
        itertools.islice(_of_books(0, 0), 2 * UPDATES)
    ):
        # Those of the sentences of `_books`.
        numbers = np.asarray(current)[:, 0].astype(int) - 3
        # All of one length, and as little padding as there may be.
        length = lengths[numbers[0]]
        assert (lengths[numbers] == length).all()
        assert current.shape == (8, {1: 4, 2: 8, 3: 10}[-(-length // 4)])
        np.testing.assert_array_equal(
            current, TEXT.sentences[numbers, : current.shape[1]]
        )
        # The words before each word: shifted by one.
        for shifted, offset in ((before, -1), (after, 1)):
            rows = TEXT.sentences[numbers + offset]
            np.testing.assert_array_equal(shifted[:, 1:], rows[:, :-1])
            assert not shifted[:, 0].any()
        passes[number // UPDATES].append((length, *numbers))
    for own in passes:
        seen = [number for _, *numbers in own for number in numbers]
        # Nothing twice, all of them to learn from, and as many as there are.
        assert len(set(seen)) == len(seen) == 8 * UPDATES
        assert set(seen) <= set(TEXT.train)
        found = [length for length, *_ in own]
        assert [found.count(n) for n in range(11)] == [*counts // 8]
        assert found != sorted(found)


def test_targets_and_weights():
    numbers = np.array([3, 11])
    (current, _, _), targets, weights = books.triples(TEXT.sentences, numbers)
    np.testing.assert_array_equal(current, TEXT.sentences[numbers])
    expected = np.concatenate(
        [TEXT.sentences[numbers - 1], TEXT.sentences[numbers + 1]], axis=1
    )
    np.testing.assert_array_equal(targets, expected)
    np.testing.assert_array_equal(weights, expected != 0)


def test_batches_hold_different_images():
    seen = set()
    for (words, features), images in itertools.islice(_of_captions(1, 0), 120):
        assert len({*images}) == 3
        np.testing.assert_array_equal(features, SPLIT.features[images])
        found = words[:, 0] // 3
        np.testing.assert_array_equal(words, SPLIT.words[found])
        np.testing.assert_array_equal(found // 5, images)
        seen.update(found)
    assert seen == set(range(35))


def test_entities_are_permuted_in_every_batch():
    seen, names = set(), {}
    for (passage, query), answer in itertools.islice(_of_questions(3, 0), 10):
        assert passage.shape == (8, 4) and query.shape == (8, 2)
        assert ((passage >= 3) & (passage < 8))[:, [0, 2]].all()
        # The same question under other names: equal stays equal.
        np.testing.assert_array_equal(passage[:, 0], answer)
        np.testing.assert_array_equal(passage[:, 2], query[:, 0])
        assert (passage[:, 0] != passage[:, 2]).all()
        assert (query[:, 1] == 2).all() and not passage[:, 3].any()
        assert (passage[:, 1] >= 8).all()
        seen.update(map(tuple, passage[:, [0, 2]]))
        for row in passage.tolist():
            names.setdefault(row[1], []).append((row[0], row[2]))
    # Most of the 20 pairs, from 80 draws; the second pass has new names.
    assert len(seen) > 14 and len(names) == 40
    assert sum(one != two for one, two in names.values()) > 30


def test_what_validates_books():
    held_out = TEXT.held_out()
    test, train = set(held_out.test), set(held_out.train)
    assert len(test) > 50 and test | train <= set(TEXT.train)
    assert len(test) + len(train) > 0.9 * len(TEXT.train)
    near = {n + k for n in test for k in (-1, 0, 1)}
    assert near.isdisjoint(n + k for n in train for k in (-1, 0, 1))


def test_short_texts_are_held_out_as_a_whole():
    train, test = books._split([15] * 60)
    assert len(train) == 57 * 13 and len(test) == 3 * 13
    parts = {n // 15 for n in train}, {n // 15 for n in test}
    assert parts[0].isdisjoint(parts[1])
    # Of few, the end of the last.
    train, test = books._split([15] * 10)
    assert [*test] == [*range(143, 149)] and train[-1] < 143 - 2
