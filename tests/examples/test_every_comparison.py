"""What comparisons write: the numbers in it are those of the saved models."""

import dataclasses
import pathlib
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import skip_thoughts_model
from common import cli, files, ranking
from common.datasets import captions
from scripts import TASKS
from text_files import book


class Run(NamedTuple):
    """A finished run of a comparison: its files, and its saved model."""

    folder: pathlib.Path
    metrics: dict[str, float]
    rows: Sequence[dict[str, float]]
    model: keras.Model
    data: Any

    def series(self, name):
        """What the history says of a log."""
        return [row[name] for row in self.rows]


# A comparison of one kind: its flags, what it leaves and what is said of it; a
# function that returns metrics anew, and within what they are the same.
CASES = {}


def comparison(
    name,
    flags,
    updates,
    said,
    folder="layer-seed-0",
    file="vocabulary.txt",
    **within,
):
    case = Namespace(**locals())
    return lambda check: CASES.setdefault(check.__name__[1:], (case, check))


@comparison(
    "attentive_reader",
    "--smoke --gain 1",
    updates=[3, 6],
    folder="layer-gain-1.0-seed-0",
    said=["updates to the validation error of layer |"],
    rel=1e-4,
)
def _reader(run):
    passages, queries, answers = run.data.validation
    # As many at a time as were evaluated.
    logits = run.model.predict([passages, queries], batch_size=32, verbose=0)
    assert 3 < run.metrics["train_nll"] < np.log(400)
    return {
        "validation_nll": float(run.model.loss(answers, logits)),
        "validation_error_percent": 100
        * (logits.argmax(axis=1) != answers).mean(),
    }


@comparison(
    "draw_mnist",
    "--smoke",
    updates=[8, 16],
    file="samples.png",
    said=[
        "Data: pixels that are more black than white.",
        "updates to the test bound of layer |",
    ],
    rel=0.05,
)
def _draw(run):
    x = run.data.test.reshape(128, 64)
    # Other noise, the same weights.
    found = run.model.evaluate(x, x, 32, verbose=0, return_dict=True)
    # 64 pixels of one bit each, at a guess.
    assert 10 < run.metrics["test_bound_nats"] < 64 * np.log(2) + 4
    return {"test_bound_nats": found["loss"], "test_kl_nats": found["kl"]}


@comparison(
    "handwriting_generation",
    "--smoke --length 8 --text ab",
    updates=[2, 4],
    file="samples.png",
    said=["10,863 weights", "updates to the test NLL of layer |"],
    rel=1e-3,
)
def _writing(run):
    test = run.data.test
    before = np.zeros_like(test.points)
    before[:, 1:] = test.points[:, :-1]
    outputs = run.model([before, test.symbols])
    # It knows its loss, which is of all points alike.
    nll = run.model.loss(test.points, outputs, sample_weight=test.valid)
    return {"test_nll": float(keras.ops.convert_to_numpy(nll))}


def _scores(model, split):
    """-E of all captions and images, one image after the other."""
    pictures = np.repeat(split.features, 5, axis=0)
    both = model([split.words, pictures])
    both = np.float64(keras.ops.convert_to_numpy(both))
    sentences, images = both[:, 0], both[::5, 1]
    return np.stack(
        [-(np.maximum(0, sentences - i) ** 2).sum(axis=1) for i in images],
        axis=1,
    )


@comparison(
    "order_embeddings",
    "--smoke --fold 20 --batch-size 16 --epochs 3",
    updates=[4, 8, 12],
    said=["| order accuracy (%) | updates to a held-out loss of 1000 |"],
    abs=0.3,
)
def _orders(run):
    """The model that was kept is the best one, ready to go on."""
    model, test = run.model, run.data.test
    assert model.optimizer.clipnorm == 2 and not model.optimizer.global_clipnorm
    assert (model.loss.similarity, model.loss.margin) == ("order", 0.05)
    sums = run.series("val_recall_sum")
    best = run.rows[int(np.argmax(sums))]
    assert run.metrics["val_recall_sum"] == max(sums)
    assert run.metrics["best_updates"] == best["updates"]
    assert run.series("val_best_recall_sum") == (
        [max(sums[: n + 1]) for n in range(3)]
    )
    for name, value in ranking.measures(_scores(model, run.data.dev)).items():
        assert best[f"val_{name}"] == pytest.approx(value, abs=0.3), name
    assert 0 < run.metrics["order_accuracy"] < 100
    # The test is the mean over two folds, and a rest that is left out.
    assert run.metrics["folds"] == 2
    folds = [
        captions.Split(
            test.words[100 * n : 100 * (n + 1)],
            test.features[20 * n : 20 * (n + 1)],
        )
        for n in range(2)
    ]
    found = [ranking.measures(_scores(model, fold)) for fold in folds]
    return {n: np.mean([one[n] for one in found]) for n in found[0]}


@comparison(
    "skip_thoughts",
    "--units 4 --word-units 3 --length 3 --data book.txt --batch-size 8 "
    f"--epochs 1 --evaluate-every 8 --eval-dir {TASKS} --eval-tasks sick cr "
    "--word-vectors vectors.txt",
    # 79 of the sentences to learn from are of each length: 18 batches, of
    # which a pass leaves out two.
    updates=[8, 16],
    said=["| held-out NLL | SICK r", "| CR (%) |"],
    rel=1e-3,
)
def _tasks(run):
    """Also with words that have vectors, but no place in the text."""
    assert run.model.optimizer.global_clipnorm == 5
    for name in ("sick_pearson", "sick_spearman", "sick_mse", "cr"):
        assert run.metrics[name] == run.rows[-1][f"val_{name}"]
    assert run.metrics["epochs"] == 1
    assert [*run.data.vectors] == ["a", "the", "story", "warm", "camera"]
    evaluation = skip_thoughts_model.sentence_evaluation
    encoded = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            evaluation,
            "evaluate",
            lambda tasks, encode: (
                encoded.append(encode(["a camera", "a thorn", "a story"])) or {}
            ),
        )
        skip_thoughts_model.measure(run.model, run.data)
        skip_thoughts_model.measure(run.model, run.data._replace(vectors={}))
    with_vectors, without = encoded
    np.testing.assert_allclose(with_vectors[1:], without[1:], atol=1e-6)
    assert np.abs(with_vectors[0] - without[0]).max() > 1e-5
    np.testing.assert_allclose(without[0], without[1], atol=1e-6)
    return skip_thoughts_model.measure(run.model, run.data)


@comparison(
    "skip_thoughts",
    "--smoke --epochs 1 --evaluate-every 9",
    updates=[9, 18],
    said=[
        "| alignment R@1 (%) |",
        "updates to the held-out NLL (nats per word) of layer |",
    ],
)
def _verses(run):
    for row in run.rows:
        assert 0 <= row["val_verses_r1"] <= row["val_verses_r10"] <= 100
        assert 1 <= row["val_verses_mean_rank"] <= 100
        assert 0 <= row["val_verses_book_accuracy"] <= 100
    # What is foreseen is worth something: less than a guess among 203 words.
    first, last = run.series("val_nll")
    assert last < first < np.log(203)
    return {}


@comparison(
    "permutation_invariant_mnist",
    "--smoke --epochs 4 --evaluate-every 4 --batch-size 128 --seed 0 1",
    updates=[*range(4, 45, 4)],
    folder="layer-batch-size-128-seed-0",
    file=None,
    said=[
        "[1/2] layer-batch-size-128-seed-0\n",
        "[2/2] layer-batch-size-128-seed-1, about ",
        "| norm                         | batch size | training NLL",
        "| logistic regression of 1,408 | ",
        "| layer, untrained             | 128        | ",
    ],
    # Two images of 384 may lie on the border and round to another side.
    abs=100 * 2.5 / 384,
)
def _digits(run):
    loss = run.series("loss")
    assert loss[-1] < 0.8 * loss[0] and run.rows[-1]["epoch"] == 4
    assert run.metrics["train_nll"] == loss[-1]
    x = run.data.test_images.reshape(-1, 64)
    found = run.model.predict(x, verbose=0).argmax(axis=1)
    row, *floors = files.read_table(run.folder.parent / "comparison.csv")
    assert len(floors) == 3
    assert (row["norm"], row["batch size"]) == ("layer", "128")
    errors = [
        files.read_json(path / "metrics.json")["test_error_percent"]
        for path in run.folder.parent.glob("layer-*")
    ]
    mean, deviation = map(float, row["test error (%)"].split(" ± "))
    assert mean == pytest.approx(np.mean(errors), rel=1e-3)
    # Printed with two digits.
    assert deviation == pytest.approx(np.std(errors, ddof=1), rel=0.05)
    wrong = 100 * np.mean(found != run.data.test_labels)
    return {"test_error_percent": wrong}


@pytest.mark.parametrize(
    ("case", "check"),
    [
        pytest.param(
            *case, id=name, marks=[pytest.mark.full] * (name != "digits")
        )
        for name, case in CASES.items()
    ],
)
def test_a_comparison(case, check, few, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(book())
    # Words of the text, and one of the tasks that the text lacks.
    vectors = "5 2\na 1 .2\nthe .3 .8\nstory .9 -.5\nwarm .4 1\ncamera -.7 .6\n"
    (tmp_path / "vectors.txt").write_text(vectors)
    experiment = cli.find(case.name)
    if case.name != "order_embeddings":
        # Of one shape, so that less is to be compiled.
        monkeypatch.setattr(type(experiment), "evaluation_batch", 32)
    flags = ["--compare", *case.flags.split(), "--output-dir", "runs"]
    one = dataclasses.replace(experiment, kinds=("layer",))
    assert cli.run(one, flags) == 0
    out = capsys.readouterr().out
    assert all(said in out for said in case.said)
    assert (tmp_path / "runs" / "comparison.png").stat().st_size > 5000
    folder = tmp_path / "runs" / case.folder
    found = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert {*found, None} == {
        *("args.json", "curves.png", "environment.json", "history.csv"),
        *("metrics.json", "model.keras", case.file, None),
    }
    for name, size in found.items():
        assert size > 1000 * name.endswith(".png"), name
    args = Namespace(**files.read_json(folder / "args.json"), tune=False)
    assert (args.norm, args.backend) == ("layer", keras.backend.backend())
    facts = files.read_json(folder / "environment.json")
    assert facts["keras"] == keras.__version__ and facts["training_minutes"] > 0
    run = Run(
        folder,
        files.read_json(folder / "metrics.json"),
        files.read_csv(folder / "history.csv"),
        keras.models.load_model(folder / "model.keras"),
        experiment.load_data(args),
    )
    assert run.series("updates") == [*case.updates]
    assert run.metrics["updates"] == case.updates[-1]
    if case.file == "vocabulary.txt":
        words = (folder / "vocabulary.txt").read_text().split("\n")[:-1]
        task = experiment.make_task(args, run.data)
        assert words == [*task.vocabulary]
    for name, value in check(run).items():
        assert run.metrics[name] == pytest.approx(value, **case.within), name
