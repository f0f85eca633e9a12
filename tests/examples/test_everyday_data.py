"""The data of everyday tasks, against small oracles."""

import collections

import everyday as script
import numpy as np
import pytest
from common.datasets import bible, plain_text, sequences


def _text(data, row):
    return "".join(data.tokens[number] for number in row)


@pytest.mark.parametrize(
    "task", [task for task in script.TASKS if task not in script.PACKAGED]
)
def test_what_belongs_together_is_in_one_part(task):
    whole = getattr(sequences, task)(240)
    again = getattr(sequences, task)(240)
    shape = {
        "addition": ((7,), (4,)),
        "characters": ((64,), (64,)),
        "long_memory": ((200, 2), (1,)),
        "verses": ((41,), ()),
        "forecast": ((64, 1), (1,)),
    }[task]
    part = whole.held_out()
    for one in (whole, part):
        assert (one.x.shape[1:], one.y.shape[1:]) == shape
        assert (one.test_x.shape[1:], one.test_y.shape[1:]) == shape
        assert len(one.x) == len(one.y) == len(one.groups)
        assert len(one.test_x) == len(one.test_y) > 0
    for one, two in zip(whole[:5], again[:5], strict=True):
        np.testing.assert_array_equal(one, two)
    assert len(whole.x) + len(whole.test_x) == 240
    # A part of the training part, and none of its groups are left.
    rows = collections.defaultdict(set)
    for row, group in zip(whole.x, whole.groups, strict=True):
        rows[row.tobytes()].add(group)
    held_out = {g for row in part.test_x for g in rows[row.tobytes()]}
    assert held_out and not held_out & {*part.groups}
    assert held_out | {*part.groups} == {*whole.groups}
    share = len(held_out) / len({*whole.groups})
    assert 1 / 12 <= share < 1 / 12 + 1 / len({*whole.groups})
    assert part.tokens == whole.tokens


def test_answers_are_sums_of_questions():
    data = sequences.addition(600)
    pairs = set()
    for x, y in ((data.x, data.y), (data.test_x, data.test_y)):
        for question, answer in zip(x, y, strict=True):
            a, b = _text(data, question[::-1]).split("+")
            assert int(a) + int(b) == int(_text(data, answer))
            assert len(a + b.strip()) <= 6
            pairs.add(frozenset((int(a), int(b))))
    assert len(pairs) == 600


def test_characters_are_those_of_chapters(monkeypatch):
    verses = bible.verses("kjv")[:600]
    monkeypatch.setattr(bible, "verses", lambda version: verses)
    texts = collections.defaultdict(list)
    for verse in verses:
        texts[verse.chapter].append(verse.text)
    chapters = ["\n".join(own) for own in texts.values()]
    data = sequences.characters(10**6)  # All of them.
    pieces = collections.defaultdict(str)
    for x, y, group in zip(data.x, data.y, data.groups, strict=True):
        np.testing.assert_array_equal(x[1:], y[:-1])
        pieces[group] += _text(data, [*x, y[-1]])
    for group, text in pieces.items():
        assert chapters[group].startswith(text)
        assert len(chapters[group]) - len(text) <= 65
    assert len(chapters) == 24 and len(pieces) == 22
    held_out = [c for n, c in enumerate(chapters) if n not in pieces]
    for x, y in zip(data.test_x, data.test_y, strict=True):
        text = _text(data, [*x, y[-1]])
        assert any(text in chapter for chapter in held_out)


def test_marked_numbers_are_added():
    data = sequences.long_memory(30)
    for row, target in zip(data.x, data.y, strict=True):
        marked = [t for t in range(200) if row[t, 1]]
        assert [t // 100 for t in marked] == [0, 1]
        assert target == pytest.approx([sum(row[t, 0] for t in marked)])
    assert 0 <= data.x.min() and data.x.max() <= 1


def test_verses_and_their_words_are_split_by_chapters():
    data = sequences.verses(2_000)
    found = collections.defaultdict(set)
    for verse in bible.verses("kjv"):
        words = tuple(plain_text.tokens(verse.text)[: sequences.MOST_WORDS])
        found[words].add(verse[:2])
    index = {word: number for number, word in enumerate(data.tokens)}
    known = {}
    for words, chapters in found.items():
        row = plain_text.encode(words, index)
        known.setdefault(tuple(row[: len(words)]), set()).update(chapters)

    def chapters(row):
        length = np.count_nonzero(row > plain_text.END)
        assert not row[length + 1 :].any()
        return known[tuple(row[:length])]

    books = {}
    parts = []
    for x, y in ((data.x, data.y), (data.test_x, data.test_y)):
        parts.append(set())
        for row, label in zip(x, y, strict=True):
            own = chapters(row)
            if len(own) == 1:  # Some verses stand in several chapters.
                ((book, chapter),) = own
                assert books.setdefault(book, label) == label
                parts[-1].add((book, chapter))
    assert sorted(books.values()) == [*range(10)]
    assert len(parts[1]) > 10 and not parts[0] & parts[1]
    # All of them are words that are learnt from.
    assert {*range(3, len(data.tokens))} <= {*data.x.flat}


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


def test_the_wanted_value_comes_50_units_later():
    data = sequences.forecast(1_000)
    for group in {*data.groups}:
        x, y = (part[data.groups == group] for part in (data.x, data.y))
        # Windows are 10 units apart: the fifth after it ends there.
        np.testing.assert_array_equal(y[:-5], x[5:, -1])
    assert data.x.std() == pytest.approx(1, abs=0.05)
    assert data.x.mean() == pytest.approx(0, abs=0.05)
