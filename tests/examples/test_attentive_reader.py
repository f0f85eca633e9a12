"""The experiment of section 6.2: its batches, and what it learns."""

import attentive_reader as script
import keras
import numpy as np
import pytest
from common.datasets import cloze
from scripts import plan


def _plan(*flags):
    return plan(script.EXPERIMENT, *flags)


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
def test_kinds_learn_to_look_up(norm, uncompiled):
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
