"""The published files of the tasks, and word2vec's text format."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from common.datasets import sentence_tasks
from common.errors import InputError

FIXTURES = Path(__file__).parent / "fixtures" / "sentence_tasks"

VECTORS = """\
4 3
</s> 0.25 0.5 -1.0 
The 1.0 2.0 3.0 
the 9.0 9.0 9.0 
Wörter -0.5 1e-3 4 
"""  # noqa: W291  (word2vec ends its lines with a space)


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FIXTURES, tmp_path / "tasks"))


def test_reads_the_published_formats(folder):
    tasks = sentence_tasks.load(folder, sentence_tasks.TASKS)
    assert [*tasks] == ["sick", "mr", "cr", "subj", "mpqa"]
    sick = tasks["sick"]
    assert [len(pairs.scores) for pairs in sick] == [18, 8, 10]
    assert sick.trial.first[0] == "A small dog is reading a letter"
    assert sick.trial.second[0] == "A brown horse is holding a basket"
    assert sick.trial.scores[:2].tolist() == [1, 3.2]
    for name in ("mr", "cr", "subj", "mpqa"):
        task = tasks[name]
        one, zero = sentence_tasks.LABELLED_FILES[name]
        texts = [(folder / f).read_text("latin-1") for f in (one, zero)]
        lines = [[s.strip() for s in text.splitlines()] for text in texts]
        assert task.sentences == lines[0] + lines[1]
        expected = len(lines[0]) * [1] + len(lines[1]) * [0]
        assert task.labels.tolist() == expected


def test_utf8_and_latin1(folder):
    path = folder / "rt-polarity.pos"
    text = path.read_text("latin-1")
    assert "small café" in text
    latin = sentence_tasks.load(folder, ["mr"])["mr"]
    path.write_text(text, encoding="utf-8")
    assert sentence_tasks.load(folder, ["mr"])["mr"].sentences == (
        latin.sentences
    )


def test_files_may_lie_in_subfolders_and_others_may_be_missing(folder):
    (folder / "CR").mkdir()
    for name in sentence_tasks.LABELLED_FILES["cr"]:
        (folder / name).rename(folder / "CR" / name)
    for path in folder.glob("*.*"):
        path.unlink()
    tasks = sentence_tasks.load(folder, ["cr"])
    assert [len(task.labels) for task in tasks.values()] == [25]


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("SICK_trial.txt", None, r"has no SICK_trial.txt, which the task sick"),
        ("custrev.neg", None, r"has no custrev.neg, which the task cr needs"),
        (
            "SICK_train.txt",
            lambda text: text.replace("\t4.7\t", "\t\t", 1),
            r"SICK_train.txt, line 2: expected a relatedness score from 1 ",
        ),
        (
            "SICK_train.txt",
            lambda text: text.replace("\t4.7\t", "\t5.5\t", 1),
            r"SICK_train.txt, line 2: .* received '5.5'",
        ),
        (
            "SICK_trial.txt",
            lambda text: text.replace("\t3.2\t", "\t", 1),
            r"SICK_trial.txt, line 3: expected 5 columns .* received 4",
        ),
        (
            "SICK_trial.txt",
            lambda text: text.partition("\n")[2],
            r"SICK_trial.txt, line 1: expected .* among them sentence_A",
        ),
        ("SICK_trial.txt", lambda _: "", r"SICK_trial.txt, line 1: expected"),
        (
            "SICK_trial.txt",
            lambda text: "\n".join(text.splitlines()[:2]),
            r"SICK_trial.txt needs pairs with at least 2 different scores",
        ),
        (
            "mpqa.pos",
            lambda text: "\n".join(text.splitlines()[:11]) + "\n\n",
            r"mpqa.pos has 11 sentences; nested 10-fold cross-validation",
        ),
    ],
)
def test_broken_files_are_named(folder, name, spoil, message):
    path = folder / name
    text = path.read_text()
    path.unlink()
    if spoil is not None:
        path.write_text(spoil(text))
    with pytest.raises(InputError, match=message):
        sentence_tasks.load(folder, sentence_tasks.TASKS)


def test_no_folder(tmp_path):
    with pytest.raises(InputError, match="--eval-dir: .*nowhere is no folder"):
        sentence_tasks.load(tmp_path / "nowhere", ["mr"])


def test_word_vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(VECTORS, encoding="utf-8")
    wanted = {"the", "wörter", "absent"}
    found = sentence_tasks.read_word_vectors(path, wanted)
    assert [*found] == ["the", "wörter"]
    # The first spelling counts.
    assert found["the"].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(found["wörter"], np.float32([-0.5, 1e-3, 4]))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.replace("4 3\n", ""), "line 1: expected the number of w"),
        (lambda t: t.replace("4 3\n", "4 0\n"), "line 1: expected the number"),
        (
            lambda t: t.replace("2.0 3.0", "2.0"),
            "line 3: expected a word and 3 numbers, received 2",
        ),
        (lambda t: t + "more 1 2 3 4\n", "line 6: .* received 4"),
        (lambda t: t.replace("4 3", "5 3"), "has 5 words and has 4"),
        (lambda t: t.replace("2.0", "two"), "line 3: expected finite numbers"),
        (lambda t: t.replace("2.0", "nan"), "line 3: expected finite numbers"),
        (lambda t: "", "line 1: expected the number of words"),
    ],
)
def test_broken_word_vectors(tmp_path, spoil, message):
    path = tmp_path / "vectors.txt"
    path.write_text(spoil(VECTORS), encoding="utf-8")
    with pytest.raises(InputError, match=f"vectors.txt.*{message}"):
        sentence_tasks.read_word_vectors(path, {"the"})


def test_no_word_vectors(tmp_path):
    with pytest.raises(InputError, match="cannot be read: .*No such file"):
        sentence_tasks.read_word_vectors(tmp_path / "none.txt", {"the"})
