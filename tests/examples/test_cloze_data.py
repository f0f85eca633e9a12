"""Cloze questions: the published format, and those made of verses."""

import shutil
from argparse import Namespace
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from common.datasets import bible, cloze, question_files, verse_questions
from common.errors import InputError

FIXTURES = Path(__file__).parent / "fixtures" / "cloze"
FIRST = "questions/training/0a1f.question"


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FIXTURES, tmp_path / "cnn"))


def _load(data, sentences=4, length=100, words=100, entities=9, data_dir=None):
    return cloze.load(
        Namespace(
            data=str(data),
            data_dir=data_dir,
            sentences=sentences,
            length=length,
            words=words,
            entities=entities,
        )
    )


def _words(found, numbers):
    return [found.vocabulary[number] for number in numbers if number]


def test_reads_the_published_format(folder):
    names, questions = zip(
        *question_files.read_split(folder, "train"), strict=True
    )
    assert names == ("0a1f", "1b2e", "2c3d")
    assert questions[0].passage.startswith("( @entity1 ) the mayor of")
    assert questions[0][1:] == (
        "mayor of @placeholder speaks about a bridge",
        "@entity4",
        ["@entity1", "@entity4", "@entity2"],
    )
    ((_, last),) = question_files.read_split(folder, "validation")
    assert "café" in last.passage


def test_passages_are_cut_to_the_sentences_nearest_to_the_query(folder, capsys):
    found = _load(folder)
    # Of the third question the answer is in the fifth sentence.
    assert capsys.readouterr().out == (
        "Data: 2 questions for training and 1 for validation; without 1 whose "
        "answer is not in what is left of their passage, and 0 with more than "
        "9 entities.\n"
    )
    text = _words(found, found.train.passages[0])
    markers = [word for word in text if word.startswith("@")]
    # The question after the others shares no word with the query.
    assert [word for word in text if not word.startswith("@")] == (
        "( ) the mayor of spoke . nobody from listened . it rained in ! "
        "plans a bridge over the river ."
    ).split()
    one, four, two, again, *_ = markers
    assert markers == [one, four, two, four, two] and again == four
    assert len({one, two, four}) == 3
    query = _words(found, found.train.queries[0])
    assert query == "mayor of @placeholder speaks about a bridge".split()


def test_what_is_shortest_stays_in_order():
    question = cloze.Question(
        [["a", "x"], ["b"], ["a", "b"], ["a", "a"]],
        ["a", "b", cloze.BLANK],
        "x",
        frozenset("x"),
    )

    def left(*limits):
        return cloze.shorten(question, *limits).passage

    assert left(1, 9) == ["a", "b"]
    # Of equals the earlier; a word counts once.
    assert left(2, 9) == ["a", "x", "a", "b"]
    assert left(3, 9) == ["a", "x", "b", "a", "b"]
    assert left(9, 4) == ["a", "x", "b", "a"]


def test_numbers(folder):
    found = _load(folder, words=3)
    size = cloze.FIRST_MARKER + found.markers
    assert found.markers == 3
    assert found.vocabulary[:size] == [
        "",
        "@unknown",
        "@placeholder",
        "@entity0",
        "@entity1",
        "@entity2",
    ]
    # "a" and "bridge" are the most frequent words, after the full stop.
    counted = Counter(_words(_load(folder), found.train.passages.ravel()))
    assert len(found.vocabulary) == size + 3 and counted
    assert set(found.vocabulary[size:]) >= {".", "bridge"}
    for part in found[:2]:
        for array in part:
            assert array.dtype == np.int32
            assert array.max() < len(found.vocabulary)
        longest = [len(row[row > 0]) for row in part.passages]
        assert all(
            not row[end:].any() and row[:end].all()
            for row, end in zip(part.passages, longest, strict=True)
        )
    for row, answer in zip(
        found.train.passages, found.train.answers, strict=True
    ):
        assert answer in row
        assert cloze.FIRST_MARKER <= answer < size


def test_entities_are_permuted_in_every_batch():
    # Questions of one known form: marker, word, marker, padding.
    count, markers = 40, 5
    random = np.random.default_rng(0)
    pairs = np.array([random.permutation(markers)[:2] for _ in range(count)])
    passages = np.zeros((count, 4), np.int32)
    passages[:, [0, 2]] = pairs + cloze.FIRST_MARKER
    passages[:, 1] = 8 + np.arange(count)  # Tells which question it is.
    queries = np.stack([passages[:, 2], np.full(count, 2)], 1).astype(np.int32)
    answers = passages[:, 0].copy()
    questions = cloze.Questions(passages, queries, answers)
    data = cloze.Cloze(questions, questions, markers, [""] * 50)

    def batches(update, seed=3):
        stream = cloze.batches(data, 8, seed, update)
        return list(stream.take(7).as_numpy_iterator())

    seen = set()
    for (passage, query), answer in batches(0):
        assert passage.shape == (8, 4) and query.shape == (8, 2)
        assert ((passage >= 3) & (passage < 8))[:, [0, 2]].all()
        # The same question under other names: equal stays equal.
        np.testing.assert_array_equal(passage[:, 0], answer)
        np.testing.assert_array_equal(passage[:, 2], query[:, 0])
        assert (passage[:, 0] != passage[:, 2]).all()
        assert (query[:, 1] == 2).all() and not passage[:, 3].any()
        assert (passage[:, 1] >= 8).all()
        seen.update(map(tuple, passage[:, [0, 2]]))
    # Most of the 20 pairs, from 56 draws; the rows of a batch differ.
    assert len(seen) > 14
    first, later = batches(0), batches(3)
    for one, two in zip(first[3:], later, strict=False):
        np.testing.assert_array_equal(one[0][0], two[0][0])
        np.testing.assert_array_equal(one[1], two[1])
    other = batches(0, seed=4)
    assert any(
        (one[1] != two[1]).any() for one, two in zip(first, other, strict=True)
    )
    # The questions of the second pass have new names.
    names = {
        row[1]: tuple(row)
        for (passage, _), _ in first[:5]
        for row in passage.tolist()
    }
    again = [row for (passage, _), _ in first[5:] for row in passage.tolist()]
    assert sum(names[row[1]] != tuple(row) for row in again) > 8


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: "", "has 1 parts with blank lines between instead of 5 "),
        (lambda t: t.replace("\n\n@entity4\n", "\n"), "has 4 parts with bla"),
        (lambda t: t.replace("\n\n@entity4\n", "\n\n\n"), "the answer is emp"),
        (lambda t: t.partition("( @")[0] + "\n\nq\n\na\n\n@entity0:A", "empty"),
        (lambda t: t.replace("@placeholder", "him"), "has no @placeholder"),
        (lambda t: t.replace("@entity4:", "@entity5:"), "'@entity4' is not am"),
        (lambda t: t + "Newtown\n", "such as @entity0:Name .* 'Newtown'"),
    ],
)
def test_broken_questions_are_named(folder, spoil, message):
    path = folder / FIRST
    path.write_text(spoil(path.read_text()))
    with pytest.raises(InputError, match=f"0a1f.question.*{message}") as error:
        _load(folder)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read(folder, tmp_path):
    path = folder / "questions/validation/3d4c.question"
    path.write_bytes(path.read_text().encode("latin-1"))
    with pytest.raises(InputError, match="3d4c.question is not in UTF-8"):
        _load(folder)
    path.unlink()
    with pytest.raises(InputError, match=r"no .*/validation/\*.question"):
        _load(folder)
    path.mkdir()
    with pytest.raises(InputError, match="3d4c.question cannot be read"):
        _load(folder)
    with pytest.raises(InputError, match="the folder questions of CNN .* rec"):
        _load(tmp_path)


def test_no_question_may_be_left(folder, capsys):
    assert len(_load(folder, entities=2).train.answers) == 1
    assert "and 1 with more than 2 entities." in capsys.readouterr().out
    with pytest.raises(InputError, match="--sentences 4 and --length 1 of its"):
        _load(folder, length=1)
    with pytest.raises(InputError, match="and at most --entities 1$"):
        _load(folder, entities=1)


def test_tensorflow_datasets_gives_the_same(folder, tmp_path):
    manual = tmp_path / "data" / "downloads" / "manual"
    shutil.copytree(folder, manual)
    expected = _load(folder)
    found = _load("tfds", data_dir=str(tmp_path / "data"))

    def texts(data):
        return sorted(
            [w for w in _words(data, row) if "@entity" not in w]
            for row in data.train.passages
        )

    # In an order of its own.
    assert texts(found) == texts(expected)
    assert found.markers == expected.markers
    np.testing.assert_array_equal(
        found.validation.queries > 0, expected.validation.queries > 0
    )
    with pytest.raises(InputError, match="is not prepared .* are at https://"):
        _load("tfds", data_dir=str(tmp_path / "nowhere"))


def test_names_are_found():
    texts = [
        "And David said to Saul . Then came David".split(),
        "Zion and David saw Rose and the rose . Saul saw Rose".split(),
        "the men of Ai , of Ai and of Zion . Behold David".split(),
    ]
    # Saul and Zion have their capital once within a sentence, "Ai" is too
    # short, and a rose is a flower too.
    assert verse_questions.find_names(texts) == {"David"}
    texts.append("he saw Saul and Zion".split())
    assert verse_questions.find_names(texts) == {"David", "Saul", "Zion"}


def test_questions_of_verses():
    train, validation = verse_questions.ask()
    assert verse_questions.ask()[0] is train
    verses = bible.verses("kjv")
    texts = [verse_questions.WORD.findall(verse.text) for verse in verses]
    names = verse_questions.find_names(texts)
    assert {"Moses", "Jerusalem", "Mary"} < names
    assert not names & {"LORD", "God", "The", "Behold", "King"}
    plain = {
        " ".join(w if w in names else w.lower() for w in t if w[0].isalpha())
        for t in texts
    }
    for question in (*train[::500], *validation[::50]):
        query = " ".join(question.query)
        assert question.answer not in query.split()
        assert query.replace(cloze.BLANK, question.answer) in plain
        assert [*map(" ".join, question.sentences)][-1] in plain
        assert len(question.sentences) == 20
        assert question.answer in question.passage
        assert question.entities == names
        assert len(names.intersection(question.passage)) > 1
    # No verse of a passage to learn from is one of those to validate with.
    first = {id(s) for question in train for s in question.sentences}
    second = {id(s) for question in validation for s in question.sentences}
    assert not first & second


def test_the_grid_validates_with_questions_of_the_training_part():
    count = 1000
    rows = np.arange(count, dtype=np.int32)
    questions = cloze.Questions(rows[:, None], rows[:, None], rows)
    data = cloze.Cloze(questions, questions.first(7), 3, [])
    held_out = data.held_out()
    found = held_out.validation.answers
    assert [*found] == [*range(450, 500), *range(950, 1000)]
    assert sorted([*found, *held_out.train.answers]) == [*rows]
    np.testing.assert_array_equal(
        held_out.train.passages[:, 0], held_out.train.answers
    )
    few = data._replace(train=questions.first(10)).held_out()
    assert len(few.validation.answers) == 1
