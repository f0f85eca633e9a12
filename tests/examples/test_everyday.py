"""Everyday tasks: their data, against small oracles, models and measures."""

import collections
import dataclasses
import json
from argparse import Namespace

import everyday as script
import everyday_model
import keras
import numpy as np
import pytest
import results
import tune
from common import claims, cli, files, grids, selection
from common.datasets import bible, plain_text, sequences

import keras_ln


def _plan(task, *flags):
    experiment = cli.find(f"everyday-{task}")
    return cli.plans(experiment, cli.parse(experiment, [*flags], "test"))[0]


def _text(data, row):
    return "".join(data.tokens[number] for number in row)


@pytest.mark.parametrize("task", script.TASKS)
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


@pytest.mark.parametrize("task", script.TASKS)
def test_every_kind_has_its_layer(task):
    plan = _plan(task, "--smoke", "--gain", "0.5")
    data = script.EXPERIMENT.load_data(plan)
    expected = {
        "lstm": (keras_ln.LNLSTM, ()),
        "lnlstm": (keras_ln.LNLSTM, ("kernel", "recurrent", "state")),
        "gru": (keras_ln.LNGRU, ()),
        "lngru": (keras_ln.LNGRU, ("kernel", "recurrent")),
        "bnlstm": (keras_ln.BNLSTM, ("kernel", "recurrent", "state")),
    }
    for norm in cli.find(f"everyday-{task}").kinds:
        gain = None if norm in ("lstm", "gru") else plan.gain
        own = Namespace(**vars(plan) | {"norm": norm, "gain": gain})
        model = script.EXPERIMENT.make_task(own, data).model
        found = [x for x in model.layers if isinstance(x, keras.layers.RNN)]
        assert len(found) == (2 if task == "addition" else 1)
        for layer in found:
            cls, sites = expected[norm]
            assert type(layer) is cls and layer.cell.normalize == sites
            assert layer.cell.units == 8
            for weight in layer.weights:
                if weight.name.endswith("gamma"):
                    values = keras.ops.convert_to_numpy(weight)
                    np.testing.assert_array_equal(values, 0.5)
        output = model(data.x[:3])
        ends = 1 if data.y.dtype.kind == "f" else output.shape[-1]
        assert (
            output.shape
            == (*data.y[:3].shape[: data.y.ndim], ends)[: output.ndim]
        )


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


def test_an_answer_is_right_as_a_whole():
    answers = np.array([[1, 0], [1, 1], [0, 1]])
    logits = np.eye(2)[np.array([[1, 0], [1, 0], [1, 0]])]
    found = everyday_model.whole(answers, keras.ops.convert_to_tensor(logits))
    assert keras.ops.convert_to_numpy(found).tolist() == [True, False, False]


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
    files.write_json(tmp_path / "args.json", {"learning_rate": 0.01})
    plan = Namespace(norm="lstm", learning_rate=0.01)
    points = [*grids.start(experiment, "lstm"), (2, 0)]
    rows = [
        {
            "norm": norm,
            "learning_rate": setting["learning_rate"],
            "scale": setting["scale"],
            "gain": "",
            "held-out loss": loss,
            "seeds": 1,
            "chosen": "",
        }
        for norm, losses in (
            ("lstm", [0.1, 0.2, 0.3, float("inf"), *5 * [0.21], 0.1]),
            ("gru", 10 * [0.0]),
        )
        for loss, setting in zip(
            losses,
            [grids.settings(experiment, plan, point) for point in points],
            strict=True,
        )
    ]
    files.write_csv(tmp_path / "tuning.csv", rows)
    for norm, expected in (("lstm", "2 of 9"), ("gru", "9 of 9")):
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
    table = claims.OF["everyday-verses"].claims
    assert [shown.count(f"| {claim.text} ") for claim in table] == [1, 1, 0, 0]
    results.main(["keep", str(tmp_path / "runs"), "kept"])
    results.main(["draw", "kept"])
    drawn = capsys.readouterr().out.removeprefix("kept\n").strip()
    assert drawn and drawn in shown
    assert (tmp_path / "kept" / "comparison.png").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--task sums", "argument --task: invalid choice: 'sums'"),
        ("--task", "argument --task: expected one argument"),
        ("--task verses --norm bnlstm", "argument --norm: invalid choice"),
        ("--norm bnlstm --batch-size 1", "needs a --batch-size of at least 2"),
        ("--data tfds", "expected --data embedded, received tfds"),
        (
            "--examples 240 --batch-size 221",
            "--batch-size 221 is more than the 220 training examples",
        ),
    ],
)
def test_bad_flags(capsys, tmp_path, flags, message):
    with pytest.raises(SystemExit) as end:
        script.main([*flags.split(), "--output-dir", str(tmp_path / "run")])
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("everyday.py: error: ") and message in err
    assert not (tmp_path / "run").exists()


def test_a_search_is_of_its_own_task(capsys):
    with pytest.raises(SystemExit):
        tune.main(["everyday-addition", "--task", "verses"])
    assert "--task: expected addition, received verses" in (
        capsys.readouterr().err
    )
