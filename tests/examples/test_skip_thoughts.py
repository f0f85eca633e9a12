"""The experiment of section 6.3: its tasks, words and floors."""

from argparse import Namespace

import numpy as np
import pytest
import skip_thoughts as script
from common.datasets import sentence_tasks
from common.errors import InputError
from scripts import TASKS, plan
from text_files import book

SMALL = ["--units", "4", "--word-units", "3", "--length", "3"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(book())
    return path


def _plan(text, *more):
    flags = [*SMALL, "--data", str(text), "--batch-size", "8", *more]
    return plan(script.EXPERIMENT, *flags)


def test_tasks_of_other_names_and_verses(tmp_path, text):
    for name, word in (("pos", "good"), ("neg", "bad")):
        lines = [f"a {word} story {number}" for number in range(20)]
        (tmp_path / f"reviews.{name}").write_text("\n".join(lines))
    flags = ["--eval-dir", str(tmp_path), "--eval-tasks", "reviews", "verses"]
    args = _plan(text, *flags, "--smoke")
    tasks = script.EXPERIMENT.load_data(args).tasks
    assert [*tasks] == ["reviews", "verses"]
    assert tasks["reviews"].labels.tolist() == 20 * [1] + 20 * [0]
    columns = script.EXPERIMENT.for_flags(args).columns
    assert columns["reviews (%)"] == "reviews"
    assert "verses_r10" in columns.values() and "cr" not in columns.values()


def test_floors_are_those_of_frequencies(text, few):
    args = _plan(text, "--eval-dir", str(TASKS), "--eval-tasks", "cr")
    data = script.EXPERIMENT.load_data(args)
    found = script.EXPERIMENT.floors(args, data)
    table, size = data.books.sentences, len(data.books.words)
    assert found["chance"]["test_nll"] == pytest.approx(np.log(size))
    counts = np.ones(size)
    for middle in data.books.train:
        for number in (*table[middle - 1], *table[middle + 1]):
            counts[number] += number != 0
    shares = counts / counts[1:].sum()
    words = [
        number
        for middle in data.books.test
        for number in (*table[middle - 1], *table[middle + 1])
        if number
    ]
    nll = -np.log(shares[words]).mean()
    assert found["frequencies of words"]["test_nll"] == pytest.approx(nll)
    # The labels of the fixture's sentences stand in their words.
    assert found["bag of words"]["cr"] > 50


def test_unknown_words_of_a_task_may_have_vectors(tmp_path):
    """A text that shares no word with the task, but vectors that do."""
    path = tmp_path / "foreign.txt"
    path.write_text("eins zwei! drei vier! " * 20)
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("4 1\neins 1\nzwei 2\ndrei 3\nwarm 4\n")
    args = _plan(path)
    args.eval_dir, args.eval_tasks = str(TASKS), ["mr"]
    with pytest.raises(InputError, match="the words of the task mr is"):
        script.EXPERIMENT.load_data(args)
    args.word_vectors = str(vectors)
    assert [*script.EXPERIMENT.load_data(args).vectors] == [
        "eins",
        "zwei",
        "drei",
        "warm",
    ]


def test_columns_of_all_tasks():
    assert script.TASKS == sentence_tasks.TASKS
    args = Namespace(eval_dir="here", eval_tasks=None)
    experiment = script.EXPERIMENT.for_flags(args)
    assert [*experiment.columns] == [
        "held-out NLL",
        *("SICK r", "SICK rho", "SICK MSE"),
        *("MR (%)", "CR (%)", "SUBJ (%)", "MPQA (%)"),
    ]
    names = (m for m in script.TASK_MEASURES if m not in script.UNDRAWN)
    row = {f"val_{name}": number for number, name in enumerate(names)}
    values = [panel.value(row | {"val_nll": -1}) for panel in experiment.panels]
    assert values == [-1, 0, 1, 2]
