"""The flags and the folder of a run: refused in one sentence or obeyed."""

import dataclasses
import importlib.util
import json
import re

import cartpole
import permutation_invariant_mnist as script
import pytest
import recurrent_dynamics
import tune
from changed import changed
from common import callbacks, claims, cli, files, measures, single
from scripts import plans, refusal


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    (tmp_path / "an_empty_folder").mkdir()


def hide(monkeypatch, package):
    """Makes a package look as if it were not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name: None if name == package else find(name),
    )


def _refusal(capsys, *flags):
    line = refusal(capsys, script.main, *flags)
    return line.removeprefix("permutation_invariant_mnist.py: error: ")


def test_tensorboard_has_to_be_there(capsys, monkeypatch):
    hide(monkeypatch, "tensorboard")
    line = _refusal(capsys, "--tensorboard")
    assert line == "--tensorboard needs it: pip install tensorboard"


@pytest.mark.parametrize(
    "module, flags",
    [
        (script, ["--smoke"]),
        (recurrent_dynamics, ["--smoke"]),
        (tune, ["permutation_invariant_mnist", "--smoke"]),
    ],
)
def test_tensorflow_has_to_be_there(capsys, monkeypatch, module, flags):
    hide(monkeypatch, "tensorflow")
    line = refusal(capsys, module.main, *flags)
    assert line.endswith(
        "error: the scripts read their data with TensorFlow on every backend: "
        "pip install '.[examples]'"
    )


def test_the_only_backend_has_to_be_there(capsys, monkeypatch):
    hide(monkeypatch, "jax")
    line = refusal(capsys, cartpole.main, "--smoke")
    assert line == (
        "cartpole.py: error: the script runs on jax, which is not installed: "
        "pip install '.[jax]'"
    )


def _run(folder, *flags):
    return script.main(
        ["--smoke", "--units", "4", "--output-dir", str(folder), *flags]
    )


def test_a_folder_belongs_to_one_run(capsys, tmp_path):
    folder = tmp_path / "new" / "run"
    assert _run(folder, "--norm", "none") == 0
    before = {path: path.read_bytes() for path in folder.iterdir()}
    out = ["--output-dir", str(folder), "--smoke", "--units", "4"]

    capsys.readouterr()
    line = _refusal(capsys, *out, "--norm", "none")
    assert "holds another run with the same flags; add --resume" in line
    line = _refusal(capsys, *out, "--norm", "layer", "--seed", "3", "--resume")
    assert "norm none there, layer here; seed 0 there, 3 here" in line
    line = _refusal(capsys, *out, "--compare", "--resume")
    assert "compare False there, True here" in line

    # A finished run stays as it is.
    assert _run(folder, "--norm", "none", "--resume") == 0
    assert "is finished" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in folder.iterdir()}

    (folder / "args.json").write_text("{")
    line = _refusal(capsys, *out, "--norm", "none", "--resume")
    assert "args.json cannot be read" in line


def test_flags_beat_smoke_which_beats_the_preset():
    def plan(*flags):
        return plans(script.EXPERIMENT, *flags)[0]

    assert (plan().units, plan().epochs, plan().data) == (256, 30, "embedded")
    paper = plan("--preset", "paper")
    assert (paper.units, paper.epochs, paper.data) == (1000, 60, "tfds")
    smoke = plan("--preset", "paper", "--smoke", "--units", "5")
    assert (smoke.units, smoke.epochs, smoke.data) == (5, 2, "embedded")
    assert plan("--smoke", "--data", "tfds").data == "tfds"
    # What --smoke does not name stays the preset's.
    assert smoke.learning_rate == paper.learning_rate


def test_a_comparison_crosses_kinds_sizes_and_seeds():
    flags = ("--compare", "--seed", "4", "5")
    planned = plans(script.EXPERIMENT, *flags)
    crossed = [(p.norm, p.batch_size, p.seed) for p in planned]
    assert len(crossed) == len(set(crossed)) == 3 * 2 * 2
    assert crossed[:3] == [("none", 128, 4), ("none", 128, 5), ("none", 4, 4)]
    record = single.describe(planned, compare=True)
    assert record["norm"] == ["none", "layer", "batch"]
    assert record["seed"] == [4, 5] and record["units"] == 256


def test_a_kind_without_gain_is_compared_once(tmp_path, capsys, monkeypatch):
    table = claims.OF[script.EXPERIMENT.name]
    monkeypatch.setitem(
        claims.OF,
        script.EXPERIMENT.name,
        dataclasses.replace(table, claims=(), thresholds=()),
    )
    losses = {None: [0.4, 0.3], 0.1: [0.3, 0.2], 1.0: [0.5, 0.4]}

    def train(args, data, folder):
        history = callbacks.History(folder / "history.csv", 10, 10)
        for epoch, loss in enumerate(losses[args.gain]):
            history.on_epoch_begin(epoch)
            history.on_epoch_end(epoch, {"loss": loss, "val_loss": loss})
        updates = history.rows[-1]["updates"]
        return {"train_nll": loss, "updates": updates}, history

    experiment = dataclasses.replace(
        changed(
            script.EXPERIMENT,
            train=train,
            floors=lambda *_: {},
            untrained=lambda *_: {},
        ),
        panels=script.EXPERIMENT.panels[:1],
        columns={"training NLL": "train_nll"},
        race=measures.Panel("training NLL", lambda row: row["loss"]),
        progress=measures.UPDATES,
        kinds=("none", "layer"),
        compared={"gain": (0.1, 1.0)},
        without_gain=("none",),
    )

    def crossed(*given):
        planned = plans(experiment, "--compare", *given)
        return [(p.norm, p.gain, p.seed) for p in planned]

    assert crossed("--seed", "2", "3") == [
        ("none", None, 2),
        ("none", None, 3),
        *(("layer", gain, seed) for gain in (0.1, 1.0) for seed in (2, 3)),
    ]
    assert crossed("--gain", "0.5")[0] == ("none", None, 0)
    assert cli.run(experiment, ["--compare", "--output-dir", "runs"]) == 0
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert {"none-seed-0", "layer-gain-0.1-seed-0"} < names
    _, table = capsys.readouterr().out.split("| norm ")
    lines = table.splitlines()[2:5]
    # `none` is the rival, whatever the gain.
    assert [re.sub(" *\\| *", "|", line) for line in lines] == [
        "|none||0.3|20|",
        "|layer|0.1|0.2|10|",
        "|layer|1|0.4|not reached (1 of 1)|",
    ]


# The seconds that runs of section 6.6 took with three seeds, on two cores whose
# other work grew meanwhile.
RECORDED = {
    ("none", 128): (27.1, 27.6, 15.5),
    ("none", 4): (27.7, 22.4, 51.4),
    ("layer", 128): (27.4, 31.6, 46.4),
    ("layer", 4): (26.0, 46.6, 52.4),
    ("batch", 128): (32.9, 76.8, 113.6),
    ("batch", 4): (165.6, 143.3, 158.8),
}


def test_the_time_left_is_true_within_a_third():
    order = [(label, seed) for seed in range(3) for label in RECORDED]
    shown = 0
    for done in range(len(order)):
        spent = {}
        for label, seed in order[:done]:
            spent.setdefault(label, []).append(RECORDED[label][seed])
        text = single.time_left(spent, [label for label, _ in order[done:]])
        if text:
            number, unit = re.fullmatch(
                r", about ([\d.]+) (s|min) left", text
            ).groups()
            seconds = float(number) * {"s": 1, "min": 60}[unit]
            left = sum(RECORDED[label][seed] for label, seed in order[done:])
            assert abs(seconds - left) < left / 3, (done, text, left)
            shown += 1
    # As soon as each kind has had a seed, and not before.
    assert shown == len(order) - len(RECORDED)


def test_files_are_whole_or_absent(tmp_path):
    path = tmp_path / "value.json"
    files.write_json(path, {"a": 1})
    with pytest.raises(RuntimeError), files.replacing(path) as partial:
        partial.write_text("{")
        assert files.is_partial(partial) and partial.suffix == ".json"
        raise RuntimeError
    assert json.loads(path.read_text()) == {"a": 1}
    left_by_a_kill = path.with_name(".partial-1-value.json")
    left_by_a_kill.touch()
    files.remove_partial(tmp_path)
    assert not left_by_a_kill.exists() and path.exists()
    rows = [{"a": 1, "b": 2.5}, {"a": 2, "c": 0.1}]
    files.write_csv(path, rows)
    assert files.read_csv(path) == rows
