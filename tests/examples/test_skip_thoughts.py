"""The experiment of section 6.3: what it writes and what it refuses."""

import dataclasses
import functools
import json
from argparse import Namespace
from pathlib import Path

import keras
import numpy as np
import pytest
import skip_thoughts as script
import skip_thoughts_model
from common import cli, devices, files, sentence_evaluation
from common.datasets import books, sentence_tasks
from common.errors import InputError
from scripts import plans
from text_files import book

TASKS = Path(__file__).parent / "fixtures" / "sentence_tasks"
SMALL = ["--units", "4", "--word-units", "3", "--length", "3"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(book())
    return path


@pytest.fixture(autouse=True)
def few_fits(monkeypatch):
    monkeypatch.setattr(sentence_evaluation, "PROCESSES", 1)
    monkeypatch.setattr(sentence_evaluation, "FOLDS", 3)
    monkeypatch.setattr(sentence_evaluation, "PENALTIES", np.array([0.1, 1.0]))


def _flags(text, *more):
    return [*SMALL, "--data", str(text), "--batch-size", "8", *more]


def _word_vectors(path):
    random = np.random.default_rng(1)
    # Those of the text, and one of the tasks that the text lacks.
    words = ["a", "the", "story", "warm", "camera"]
    lines = [f"{w} {x:.3f} {y:.3f}" for w, (x, y) in _numbered(words, random)]
    path.write_text("\n".join([f"{len(words)} 2", *lines, ""]))
    return path


def _numbered(words, random):
    return zip(words, random.normal(size=(len(words), 2)), strict=True)


def _only(monkeypatch, kind):
    experiment = dataclasses.replace(script.EXPERIMENT, kinds=(kind,))
    monkeypatch.setattr(script, "main", functools.partial(cli.run, experiment))


@pytest.mark.full
def test_published_tasks(tmp_path, text, monkeypatch, capsys):
    _only(monkeypatch, "none")
    folder = tmp_path / "runs"
    vectors = _word_vectors(tmp_path / "vectors.txt")
    flags = _flags(text, "--epochs", "1", "--evaluate-every", "8", "--compare")
    flags += ["--eval-dir", str(TASKS), "--eval-tasks", "sick", "cr"]
    flags += ["--word-vectors", str(vectors), "--output-dir", str(folder)]
    assert script.main(flags) == 0
    out = capsys.readouterr().out
    assert "| held-out NLL | SICK r" in out and "| CR (%) |" in out
    assert "verses" not in out and "MR (%)" not in out
    assert (folder / "comparison.png").stat().st_size > 10_000
    run = folder / "none-seed-0"
    assert (run / "curves.png").exists()
    rows = files.read_csv(run / "history.csv")
    # 79 of the sentences to learn from are of each length: 18 batches, of
    # which a pass leaves out two.
    assert [row["updates"] for row in rows] == [8, 16]
    metrics = json.loads((run / "metrics.json").read_text())
    for name in ("sick_pearson", "sick_spearman", "sick_mse", "cr"):
        assert metrics[name] == rows[-1][f"val_{name}"]
    assert metrics["updates"] == 16 and metrics["epochs"] == 1
    # The results are those of the model that was saved.
    model = keras.saving.load_model(run / "model.keras")
    own = flags[: flags.index("--compare")]
    (plan,) = plans(script.EXPERIMENT, *own, "--norm", "none")
    for name in ("eval_dir", "word_vectors"):
        setattr(plan, name, flags[flags.index(_flag(name)) + 1])
    plan.eval_tasks = ["sick", "cr"]
    data = script.EXPERIMENT.load_data(plan)
    words = (run / "vocabulary.txt").read_text().split("\n")[:-1]
    assert words == [*data.books.words]
    assert [*data.vectors] == ["a", "the", "story", "warm", "camera"]
    found = skip_thoughts_model.measure(model, data)
    for name, value in found.items():
        assert metrics[name] == pytest.approx(value, rel=1e-3), name
    # "camera" has a vector that makes a difference.
    sentences = ["a camera", "a thorn", "a story"]
    encoded = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sentence_evaluation,
            "evaluate",
            lambda tasks, encode: encoded.append(encode(sentences)) or {},
        )
        skip_thoughts_model.measure(model, data)
        skip_thoughts_model.measure(model, data._replace(vectors={}))
    with_vectors, without = encoded
    np.testing.assert_allclose(with_vectors[1:], without[1:], atol=1e-6)
    assert np.abs(with_vectors[0] - without[0]).max() > 1e-5
    np.testing.assert_allclose(without[0], without[1], atol=1e-6)


def _flag(name):
    return f"--{name.replace('_', '-')}"


def test_tasks_of_other_names_and_verses(tmp_path, text):
    for name, word in (("pos", "good"), ("neg", "bad")):
        lines = [f"a {word} story {number}" for number in range(20)]
        (tmp_path / f"reviews.{name}").write_text("\n".join(lines))
    flags = ["--eval-dir", str(tmp_path), "--eval-tasks", "reviews", "verses"]
    (plan,) = plans(script.EXPERIMENT, *_flags(text, *flags, "--smoke"))
    tasks = script.EXPERIMENT.load_data(plan).tasks
    assert [*tasks] == ["reviews", "verses"]
    assert tasks["reviews"].labels.tolist() == 20 * [1] + 20 * [0]
    columns = script.EXPERIMENT.for_flags(plan).columns
    assert columns["reviews (%)"] == "reviews"
    assert "verses_r10" in columns.values() and "cr" not in columns.values()


def test_floors_are_those_of_frequencies(text):
    flags = _flags(text, "--eval-dir", str(TASKS), "--eval-tasks", "cr")
    (plan,) = plans(script.EXPERIMENT, *flags)
    data = script.EXPERIMENT.load_data(plan)
    found = script.EXPERIMENT.floors(plan, data)
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


@pytest.mark.full
def test_embedded_verses(tmp_path, monkeypatch, capsys):
    genesis = {"Genesis": books.king_james()["Genesis"]}
    monkeypatch.setattr(books, "king_james", lambda: genesis)
    folder = tmp_path / "runs"
    _only(monkeypatch, "layer")
    flags = ["--smoke", "--compare", "--epochs", "1", "--evaluate-every", "9"]
    assert script.main([*flags, "--output-dir", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "| alignment R@1 (%) |" in out
    assert "updates to the held-out NLL (nats per word) of layer |" in out
    rows = files.read_csv(folder / "layer-seed-0" / "history.csv")
    assert [row["updates"] for row in rows] == [9, 18]
    for row in rows:
        assert 0 <= row["val_verses_r1"] <= row["val_verses_r10"] <= 100
        assert 1 <= row["val_verses_mean_rank"] <= 100
        assert 0 <= row["val_verses_book_accuracy"] <= 100
    # What is foreseen is worth something: less than a guess among 203 words.
    assert rows[1]["val_nll"] < rows[0]["val_nll"] < np.log(203)


def test_unknown_words_of_a_task_may_have_vectors(tmp_path):
    """A text that shares no word with the task, but vectors that do."""
    path = tmp_path / "foreign.txt"
    path.write_text("eins zwei! drei vier! " * 20)
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("4 1\neins 1\nzwei 2\ndrei 3\nwarm 4\n")
    (plan,) = plans(script.EXPERIMENT, *_flags(path))
    plan.eval_dir, plan.eval_tasks = str(TASKS), ["mr"]
    with pytest.raises(InputError, match="the words of the task mr is"):
        script.EXPERIMENT.load_data(plan)
    plan.word_vectors = str(vectors)
    assert [*script.EXPERIMENT.load_data(plan).vectors] == [
        "eins",
        "zwei",
        "drei",
        "warm",
    ]


def test_the_papers_flags():
    (plan,) = plans(script.EXPERIMENT, "--preset", "paper")
    assert (plan.batch_size, plan.learning_rate) == (64, 2e-4)
    assert plan.evaluate_every == 1_000


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


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_number_of_devices_share_what_is_held_out(
    text, monkeypatch, number
):
    monkeypatch.setattr(devices, "names", lambda: number * ["CPU"])
    (plan,) = plans(script.EXPERIMENT, *_flags(text, "--evaluate-every", "1"))
    plan.distribute = "data-parallel"
    monkeypatch.setattr(type(script.EXPERIMENT), "evaluation_batch", 4)
    data = Namespace(books=books.load(plan)._replace(test=np.arange(1, 8)))
    script.EXPERIMENT.check(plan, data)
    batches = script.EXPERIMENT.make_task(plan, data).validation_data
    sizes = [len(x[0]) for x, *_ in batches]
    assert sizes == {1: [4, 3], 2: [4, 2], 3: [3, 3]}[number]


@pytest.mark.full
def test_what_is_held_out_of_the_bible_is_shared(monkeypatch):
    monkeypatch.setattr(devices, "names", lambda: ["a", "b"])
    flags = ("--distribute", "data-parallel", "--units", "4")
    (plan,) = plans(script.EXPERIMENT, *flags)
    data = Namespace(books=books.load(plan))
    held_out = len(data.books.test)
    assert held_out % 2
    script.EXPERIMENT.check(plan, data)
    *_, last = script.EXPERIMENT.make_task(plan, data).validation_data
    assert len(last[0][0]) == held_out % script.EXPERIMENT.evaluation_batch - 1


def test_fewer_triples_than_devices_are_refused(text, monkeypatch):
    monkeypatch.setattr(devices, "names", lambda: 4 * ["CPU"])
    (plan,) = plans(script.EXPERIMENT, *_flags(text, "--evaluate-every", "1"))
    plan.distribute = "data-parallel"
    data = Namespace(books=books.load(plan)._replace(test=np.arange(1, 4)))
    message = "the 3 held-out examples are fewer than the 4 devices"
    with pytest.raises(InputError, match=message):
        script.EXPERIMENT.check(plan, data)
