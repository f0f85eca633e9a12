"""The experiment of section 6.2: what it learns, writes and refuses."""

import dataclasses
import json

import attentive_reader as script
import keras
import numpy as np
import pytest
from common import cli, devices
from common.datasets import cloze, verse_questions
from scripts import plan, plans

pytestmark = pytest.mark.usefixtures("uncompiled")


@pytest.fixture
def few(monkeypatch):
    """Few questions, so that a batch size can be too large."""
    train, validation = verse_questions.ask()
    few = train[:400], validation[:96]
    monkeypatch.setattr(verse_questions, "ask", lambda: few)


def _plan(*flags):
    return plan(script.EXPERIMENT, *flags)


@pytest.mark.full
def test_a_comparison_writes_everything(few, tmp_path, capsys, monkeypatch):
    # Of one shape, so that less is to be compiled.
    monkeypatch.setattr(type(script.EXPERIMENT), "evaluation_batch", 32)
    folder = tmp_path / "runs"
    experiment = dataclasses.replace(
        script.EXPERIMENT,
        kinds=("layer",),
        compared={"gain": (1.0,)},
    )
    flags = ["--smoke", "--compare", "--output-dir", str(folder)]
    assert cli.run(experiment, flags) == 0
    out = capsys.readouterr().out
    assert "updates to the validation error of layer |" in out
    assert (folder / "comparison.png").stat().st_size > 5000
    run = folder / "layer-gain-1.0-seed-0"
    assert (run / "curves.png").exists()
    metrics = json.loads((run / "metrics.json").read_text())
    assert 3 < metrics["train_nll"] < np.log(400)
    data = script.EXPERIMENT.load_data(_plan("--smoke"))
    words = (run / "vocabulary.txt").read_text().split("\n")[:-1]
    assert words == data.vocabulary
    # The reported values are the saved model's, and it knows its loss.
    model = keras.models.load_model(run / "model.keras")
    passages, queries, answers = data.validation
    # As many at a time as were evaluated.
    logits = np.concatenate(
        [
            keras.ops.convert_to_numpy(
                model([passages[part], queries[part]], training=False)
            )
            for part in (slice(0, 32), slice(32, 64), slice(64, 96))
        ]
    )
    assert float(model.loss(answers, logits)) == pytest.approx(
        metrics["validation_nll"], rel=1e-4
    )
    wrong = logits.argmax(axis=1) != answers
    assert 100 * wrong.mean() == pytest.approx(
        metrics["validation_error_percent"]
    )


def test_batches_are_those_of_the_data(few):
    plan = _plan("--smoke", "--batch-size", "8")
    data = script.EXPERIMENT.load_data(plan)
    task = script.EXPERIMENT.make_task(plan, data)
    (passages, queries), answers = next(task.batches(0).as_numpy_iterator())
    assert passages.shape == (8, 40) and queries.shape[0] == 8
    assert all(
        answer in passage
        for passage, answer in zip(passages, answers, strict=True)
    )
    assert (queries == data.vocabulary.index(cloze.BLANK)).any(axis=1).all()
    (x, y), *_ = task.validation_data.as_numpy_iterator()
    np.testing.assert_array_equal(x[0], data.validation.passages)
    np.testing.assert_array_equal(y, data.validation.answers)


def test_devices_share_the_validation_questions(few, monkeypatch):
    monkeypatch.setattr(devices, "names", lambda: 3 * ["CPU"])
    plan = _plan("--smoke", "--batch-size", "6")
    plan.distribute = "data-parallel"
    data = script.EXPERIMENT.load_data(plan)
    data = data._replace(validation=data.validation.first(8))
    monkeypatch.setattr(type(script.EXPERIMENT), "evaluation_batch", 5)
    script.EXPERIMENT.check(plan, data)
    x, y = zip(
        *script.EXPERIMENT.make_task(plan, data).validation_data,
        strict=True,
    )
    assert [len(answers) for answers in y] == [3, 3]
    np.testing.assert_array_equal(
        np.concatenate([passages for passages, _ in x]),
        data.validation.passages[:6],
    )


def test_only_kinds_with_a_gain_are_trained_with_two():
    compared = plans(script.EXPERIMENT, "--compare")
    assert [(plan.norm, plan.gain) for plan in compared] == [
        ("none", None),
        *(
            (norm, gain)
            for norm in ("batch", "batch-everywhere", "layer")
            for gain in (0.1, 1.0)
        ),
    ]


def test_the_papers_settings():
    plan = _plan("--preset", "paper", "--norm", "batch")
    assert (plan.units, plan.batch_size, plan.sentences) == (240, 64, 4)
    assert (plan.learning_rate, plan.dropout) == (8e-5, 0.5)


def _toy(count, random):
    """Which marker stands after the word that the query names?"""
    markers, words, length = 4, 6, 8
    first = cloze.FIRST_MARKER
    passages = np.zeros((count, length), np.int32)
    queries = np.full((count, 2), 2, np.int32)
    answers = np.zeros(count, np.int32)
    for row in range(count):
        named = random.permutation(words)[: length // 2]
        passages[row, 0::2] = first + markers + named
        passages[row, 1::2] = first + random.permutation(markers)
        chosen = random.integers(length // 2)
        queries[row, 0] = passages[row, 2 * chosen]
        answers[row] = passages[row, 2 * chosen + 1]
    return cloze.Questions(passages, queries, answers)


class Learnt(keras.callbacks.Callback):
    """Ends a training that has learnt. At a guess one of four is right."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = logs["val_accuracy"] > 0.95


@pytest.mark.full
@pytest.mark.on_tensorflow
# "batch" takes many more updates for it.
@pytest.mark.parametrize("norm", ["none", "batch-everywhere", "layer"])
def test_kinds_learn_to_look_up(norm):
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    vocabulary = [""] * (cloze.FIRST_MARKER + 4 + 6)
    data = cloze.Cloze(_toy(2048, random), _toy(256, random), 4, vocabulary)
    plan = _plan("--norm", norm, "--dropout", "0", "--units", "32")
    task = script.EXPERIMENT.make_task(plan, data)
    history = task.model.fit(
        task.batches(0),
        steps_per_epoch=200,
        epochs=8,
        validation_data=task.validation_data,
        callbacks=[Learnt()],
        verbose=0,
    )
    assert history.history["val_accuracy"][-1] > 0.95
