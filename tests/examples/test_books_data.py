"""Plain text as triples, and batches of equally long sentences."""

from argparse import Namespace

import numpy as np
import pytest
import tensorflow as tf
from common.datasets import books, plain_text
from common.errors import InputError

TEXT = """\
The rain stopped. "Who goes there?" asked the
guard of the old gate... Nobody answered!

CHAPTER TWO
of the book

Mr. Fox, who'd slept well-nigh all day, came home. He sat down.
"""


def _load(path, vocabulary=100, length=30):
    return books.load(
        Namespace(data=str(path), vocabulary=vocabulary, length=length)
    )


def _text(loaded, row):
    return " ".join(loaded.words[n] for n in row if n)


def _random_books(count=700, length=9, seed=1):
    """Sentences of all lengths, whose words tell where they stand."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, length + 2, count)
    rows = np.zeros((count, length + 1), np.uint16)
    for number, (row, size) in enumerate(zip(rows, lengths, strict=True)):
        row[:size] = 3 + number
    middle = np.arange(1, count - 1)
    words = tuple(map(str, range(3 + count)))
    return books.Books(words, rows, middle[:-20], middle[-20:])


def test_the_grid_holds_out_sentences_that_training_lacks():
    loaded = _random_books()
    held_out = loaded.held_out()
    test, train = set(held_out.test), set(held_out.train)
    assert len(test) > 50 and test | train <= set(loaded.train)
    assert len(test) + len(train) > 0.9 * len(loaded.train)
    near = {n + k for n in test for k in (-1, 0, 1)}
    assert near.isdisjoint(n + k for n in train for k in (-1, 0, 1))


def test_sentences_of_plain_text():
    found = [" ".join(s) for s in plain_text.sentences(TEXT.splitlines())]
    assert found == [
        "the rain stopped .",
        '" who goes there ? "',
        "asked the guard of the old gate . . .",
        "nobody answered !",
        "chapter two of the book",
        "mr . fox , who'd slept well-nigh all day , came home .",
        "he sat down .",
    ]


def test_the_most_frequent_words_are_known(tmp_path):
    path = tmp_path / "book.txt"
    # The last three are held out: their words do not count.
    path.write_text("A b c. A b! A d e." + " F c c." * 3, encoding="utf-8")
    loaded = _load(path, vocabulary=4)
    # By frequency, then by the alphabet.
    assert loaded.words == (*plain_text.MARKS, "a", ".", "b", "!")
    found = [_text(loaded, row) for row in loaded.sentences]
    assert found[3:] == ["<unknown> <unknown> <unknown> . <end>"] * 3
    assert found[:3] == [
        "a b <unknown> . <end>",
        "a b ! <end>",
        "a <unknown> <unknown> . <end>",
    ]
    assert loaded.sentences.shape == (6, 31)


def test_long_sentences_are_cut_without_an_end(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("A b c d e. A b c. A b." + " A b." * 3)
    loaded = _load(path, length=4)
    found = [_text(loaded, row) for row in loaded.sentences[:3]]
    assert found == ["a b c d", "a b c . <end>", "a b . <end>"]


def test_triples_stay_in_their_text_and_ends_are_held_out(tmp_path):
    for name, count in (("b.txt", 60), ("a.txt", 43), ("sub/c.txt", 3)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("Yes. " * count)
    (tmp_path / "notes.md").write_bytes(b"\xff")
    loaded = _load(tmp_path)
    assert len(loaded.sentences) == 106
    # a.txt has 41 middle sentences, of which 5 % are 2; c.txt a single one.
    test = [40, 41, 100, 101]
    train = [*range(1, 38), *range(44, 98), 104]
    # The last two of b.txt's 58.
    assert loaded.test.tolist() == test[:2] + [100, 101]
    assert loaded.train.tolist() == train
    _check_nothing_shared(loaded)


def _check_nothing_shared(loaded):
    """Triples to learn from have no sentence of those held out."""
    learnt, held = (
        {i + k for i in own.tolist() for k in (-1, 0, 1)}
        for own in (loaded.train, loaded.test)
    )
    assert not learnt & held


def test_short_texts_hold_out_one(tmp_path):
    (tmp_path / "a.txt").write_text("Yes. " * 6)
    loaded = _load(tmp_path)
    assert loaded.train.tolist() == [1] and loaded.test.tolist() == [4]


def test_the_first_sentences(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("Yes. " * 100)
    loaded = _load(tmp_path).first(205)
    assert len(loaded.sentences) == 205
    assert loaded.test.tolist() == [203]
    assert set(range(101, 192)) < set(loaded.train.tolist())
    _check_nothing_shared(loaded)
    whole = loaded.first(1000)
    assert len(whole.sentences) == 205
    assert whole.test.tolist() == [203]


def test_the_bible_held_out_is_not_learnt():
    loaded = books.build(books.king_james(), 2000, 20)
    _check_nothing_shared(loaded)
    share = len(loaded.test) / (len(loaded.train) + len(loaded.test))
    assert 0.04 < share < 0.06


def test_embedded_text_is_the_king_james_bible_in_order():
    texts = books.king_james()
    assert [*texts][:2] == ["Genesis", "Exodus"] and len(texts) == 66
    first = next(plain_text.sentences(texts["Genesis"]))
    assert " ".join(first) == (
        "in the beginning god created the heaven and the earth ."
    )


def _ids(rows):
    """The numbers of the sentences of `_random_books`."""
    return np.asarray(rows)[:, 0].astype(int) - 3


def test_batches_are_equally_long_and_follow_seed_and_step():
    text, size = _random_books(), 8
    lengths = np.count_nonzero(text.sentences, axis=1)
    counts = np.bincount(lengths[text.train])
    updates = int(sum(count // size for count in counts))

    def batches(seed, first, count):
        stream = books.batches(text, size, seed, updates, first)
        return [[*map(np.array, x)] for x, _, _ in stream.take(count)]

    whole = batches(seed=0, first=0, count=2 * updates)
    passes = []
    for start in (0, updates):
        seen = []
        own_lengths = []
        for current, before, after in whole[start : start + updates]:
            numbers = _ids(current)
            # All of one length, and as little padding as there may be.
            length = lengths[numbers[0]]
            assert (lengths[numbers] == length).all()
            assert current.shape == (size, {1: 4, 2: 8, 3: 10}[-(-length // 4)])
            np.testing.assert_array_equal(
                current, text.sentences[numbers, : current.shape[1]]
            )
            # The words before each word: shifted by one.
            for shifted, offset in ((before, -1), (after, 1)):
                rows = text.sentences[numbers + offset]
                np.testing.assert_array_equal(shifted[:, 1:], rows[:, :-1])
                assert not shifted[:, 0].any()
            seen += numbers.tolist()
            own_lengths.append(length)
        # Nothing twice, all of them to learn from, and as many as there are.
        assert len(set(seen)) == len(seen) == updates * size
        assert set(seen) <= set(text.train)
        for length, count in enumerate(counts):
            assert own_lengths.count(length) == count // size
        assert own_lengths != sorted(own_lengths)
        passes.append(seen)
    # Every pass is shuffled anew.
    assert passes[0] != passes[1]
    assert sorted(passes[0]) != sorted(passes[1])
    for first in (1, updates - 1, updates, updates + 3):
        for one, two in zip(batches(0, first, 4), whole[first:], strict=False):
            for a, b in zip(one, two, strict=True):
                np.testing.assert_array_equal(a, b)
    other = [_ids(x[0]).tolist() for x in batches(1, 0, updates)]
    assert other != [_ids(x[0]).tolist() for x in whole[:updates]]


def test_targets_and_weights():
    text = _random_books(count=30)
    numbers = np.array([3, 11])
    table = tf.constant(text.sentences)
    (current, _, _), targets, weights = books.triples(table, numbers)
    np.testing.assert_array_equal(current, text.sentences[numbers])
    expected = np.concatenate(
        [text.sentences[numbers - 1], text.sentences[numbers + 1]], axis=1
    )
    np.testing.assert_array_equal(targets, expected)
    np.testing.assert_array_equal(weights, expected != 0)


def test_held_out_triples_in_order():
    text = _random_books()
    found = [x[0] for x, _, _ in books.in_order(text, 8)]
    assert [len(own) for own in found] == [8, 8, 4]
    assert _ids(np.concatenate(found)).tolist() == text.test.tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"book.txt has 0 sentences; one between two others needs at"),
        (b"One.", r"book.txt has 1 sentence; one between"),
        (b"One. Two.\n", r"book.txt has 2 sentences"),
        (
            b"One.\nTwo caf\xe9s.\nThree.\n",
            r"book.txt, line 2: expected UTF-8, received the byte 0xe9",
        ),
        (
            "One.\nTwo.\nThree.\n".encode("utf-16"),
            r"book.txt, line 1: expected UTF-8, received the byte 0xff",
        ),
    ],
)
def test_unusable_text_is_named(tmp_path, content, message):
    (tmp_path / "book.txt").write_bytes(content)
    (tmp_path / "a.txt").write_text("One. Two. Three.")
    with pytest.raises(InputError, match=message):
        _load(tmp_path)


def test_byte_order_mark(tmp_path):
    path = tmp_path / "book.txt"
    path.write_bytes("\ufeffOne. Two. Three. Four. Five.".encode())
    assert "one" in _load(path).words


def test_folder_without_text_and_other_sources(tmp_path):
    (tmp_path / "book.pdf").write_bytes(b"")
    with pytest.raises(InputError, match="has no .txt files"):
        _load(tmp_path)
    with pytest.raises(InputError, match="the books that the paper used are"):
        _load("tfds")
