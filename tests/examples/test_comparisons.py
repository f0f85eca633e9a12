"""Comparisons: folders, seeds, floors and titles."""

import dataclasses
import json
import re
import subprocess
import sys

import numpy as np
import permutation_invariant_mnist as script
import pytest
from changed import changed
from common import (
    callbacks,
    claims,
    cli,
    comparisons,
    files,
    measures,
    plotting,
    single,
)
from common.datasets import mnist
from common.errors import InputError, NonFiniteLossError
from scripts import environment, plans, rows
from untrained_comparisons import compare


@pytest.mark.parametrize(
    ("flags", "seeds"),
    [
        ("--compare", [0]),
        ("--compare --preset paper", [*range(200, 210)]),
        ("--compare --preset paper --seed 7", [7]),
        ("--compare --preset paper --smoke", [0]),
        ("--compare --tune --seed 3 4", [3, 4]),
        ("--preset paper", [0]),
    ],
)
def test_seeds_by_default(flags, seeds):
    planned = plans(script.EXPERIMENT, *flags.split())
    assert list(dict.fromkeys(plan.seed for plan in planned)) == seeds


def test_seeds_can_be_added(tmp_path, experiment, trained, capsys):
    folder = tmp_path / "runs"
    assert compare(experiment, folder, "--seed", "0", "1") == 0
    with pytest.raises(SystemExit):
        compare(experiment, folder, "--seed", "0", "1", "2")
    assert "add --resume" in capsys.readouterr().err
    assert json.loads((folder / "args.json").read_text())["seed"] == [0, 1]
    for other in (["1", "2"], ["0"]):
        with pytest.raises(SystemExit):
            compare(experiment, folder, "--seed", *other, "--resume")
        assert "seed [0, 1] there" in capsys.readouterr().err
    assert compare(experiment, folder, "--seed", "0", "1", "2", "--resume") == 0
    assert len(trained) == 6
    assert json.loads((folder / "args.json").read_text())["seed"] == [0, 1, 2]
    assert "± 0.01" in rows(folder / "comparison.csv")[0]["test NLL"]


def test_floors_stand_in_the_table(tmp_path, experiment, capsys):
    assert compare(experiment, tmp_path / "runs", "--seed", "0") == 0
    table = rows(tmp_path / "runs" / "comparison.csv")
    names = [row["norm"] for row in table]
    assert names == [
        *("none", "layer", "chance", "logistic regression of 1,408"),
        *("none, untrained", "layer, untrained"),
    ]
    cells = {row["norm"]: row["test NLL"] for row in table}
    assert cells["chance"] == "2.303"  # log 10
    assert 0.05 < float(cells["logistic regression of 1,408"]) < 0.5
    assert cells["none, untrained"] == "2.5"
    assert table[2]["training NLL"] == ""
    assert "| chance " in capsys.readouterr().out


def test_titles_name_data_sizes_and_seeds(tmp_path, experiment, monkeypatch):
    titles = []
    draw = plotting.comparison
    monkeypatch.setattr(
        plotting,
        "comparison",
        lambda *args: [titles.append(args[-2]), draw(*args)],
    )
    assert compare(experiment, tmp_path / "runs", "--seed", "4", "6") == 0
    assert titles[-1] == (
        "scikit-learn's digits, 8 x 8, 1,408 training and 384 test images\n"
        "256 units, batch size 128, 8 epochs, seeds 4, 6"
    )
    title = single.title("data", plans(experiment)[0], ["batch_size"])
    assert title == "data\n256 units, 30 epochs"


@pytest.mark.parametrize(
    ("name", "learnt"),
    [
        ("permutation_invariant_mnist", "1,291 training and 384 test"),
        ("draw_mnist", "233 training and 128 test"),
        ("handwriting_generation", "56 training and 64 test"),
        ("attentive_reader", "231 training and 128 validation"),
        ("skip_thoughts", "1,374 training and 14 held-out"),
    ],
)
def test_titles_count_what_is_learnt_from(name, learnt):
    """With --tune that is less than there is."""
    experiment = cli.find(name)
    flags = ["--compare", "--tune", "--smoke"]
    plan = cli.plans(experiment, cli.parse(experiment, flags, "test"))[0]
    data = experiment.load_data(plan)
    found = experiment.describe(plan, data)
    assert learnt in found


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("layer-seed-0/metrics.json", lambda text: "[]"),
        ("layer-seed-0/metrics.json", lambda text: "{}"),
        ("floors.json", lambda text: "{}"),
        ("floors.json", lambda text: '[{"label": ["chance"]}]'),
        ("layer-seed-0/history.csv", lambda text: ""),
        ("layer-seed-0/history.csv", lambda text: text[: text.rindex(",")]),
        # Whole rows would be another mean, and nobody would know.
        (
            "layer-seed-0/history.csv",
            lambda text: "\n".join(text.split("\n")[:-2]),
        ),
    ],
)
def test_damaged_results_are_named(tmp_path, experiment, capsys, name, damage):
    folder = tmp_path / "runs"
    assert compare(experiment, folder, "--seed", "0") == 0
    path = folder / name
    path.write_text(damage(path.read_text()))
    with pytest.raises(SystemExit, match="2"):
        compare(experiment, folder, "--seed", "0", "--resume")
    assert f"{path} is damaged" in capsys.readouterr().err


def test_runs_with_other_word_vectors_are_refused(tmp_path):
    record = {"decay": "none", "embeddings": "normal", "seed": 0}
    told = r"another run \(embeddings uniform there, normal here\)"
    single.open_folder(tmp_path / "old", {"seed": 0}, resume=False)
    with pytest.raises(InputError, match=told):
        single.open_folder(tmp_path / "old", record, resume=True)
    # Of the same vectors, before they were recorded, or without any.
    since = {"seed": 0, "decay": "none"}
    single.open_folder(tmp_path / "since", since, resume=False)
    for other in (record, since):
        single.open_folder(tmp_path / "since", other, resume=True)
    single.open_folder(tmp_path / "old", since, resume=True)


def test_other_data_under_the_same_path_are_refused(
    tmp_path, experiment, capsys
):
    digits, folder = mnist.small_digits(), tmp_path / "runs"
    other = digits._replace(test_labels=digits.test_labels[::-1])

    def of(data, *seeds):
        own = changed(experiment, load_data=lambda args: data)
        flags = ["--data", str(tmp_path), "--resume", "--seed", *seeds]
        return compare(own, folder, *flags)

    assert of(digits, "0") == of(digits, "0", "1") == 0
    capsys.readouterr()
    with pytest.raises(SystemExit):
        of(other, "0", "1")
    told = r"another run \(data_crc32 [\da-f]{8} there, [\da-f]{8} here\)"
    assert re.search(told, capsys.readouterr().err)
    # Runs from before the checksum go on without it.
    record = files.read_json(folder / "args.json")
    old = {key: record[key] for key in record if key != "data_crc32"}
    files.write_json(folder / "args.json", old)
    assert of(digits, "0", "1", "2") == 0
    assert files.read_json(folder / "args.json") == old | {"seed": [0, 1, 2]}


def test_the_checksum_of_data_is_the_same_everywhere():
    columns = np.arange(12, dtype="<i4").reshape(3, 4)[:, ::2]
    data = {"b": columns, "a": [("x", "yz"), 1.5, None, columns[:0]]}
    found = single.crc32(data)
    assert found == 1598395648
    assert found == single.crc32(dict([*data.items()][::-1]))
    for other in (
        data | {"b": columns[::-1]},
        data | {"b": columns.reshape(2, 3)},
        data | {"a": [("xy", "z"), *data["a"][1:]]},
        data | {"a": ["x", "yz", *data["a"][1:]]},
    ):
        assert single.crc32(other) != found
    for unknown in ({1}, object(), np.array(["x", None])):
        with pytest.raises(TypeError, match="expected texts and numbers"):
            single.crc32(unknown)


TRAINED = (
    "2 networks were trained (norm none, layer) on scikit-learn's digits, "
    "8 x 8, 1,408 training and 384 test images: 256 units, batch size 128, 8 "
    "epochs, seed 0."
)


def test_seeds_too_few_for_verdicts(tmp_path, experiment, capsys, monkeypatch):
    """What was trained, what came out, what to do, and the picture, last."""
    claim = claims.Claim(
        "layer ends lower than none",
        *("layer", "none", measures.end("test_nll", "test NLL")),
    )
    table = dataclasses.replace(
        claims.OF[experiment.name], claims=[claim], seeds=4
    )
    monkeypatch.setitem(claims.OF, experiment.name, table)
    folder = tmp_path / "runs"
    assert compare(experiment, folder, "--seed", "0") == 0
    found = {
        kind: json.loads(
            (folder / f"{kind}-seed-0" / "metrics.json").read_text()
        )["test_nll"]
        for kind in experiment.kinds
    }
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 networks will be trained, one after")
    assert lines[-5] == TRAINED
    assert lines[-4] == (
        'For the first claim, "layer ends lower than none", the test NLL at '
        "the end (negative log-likelihood; lower is better) was "
        f"{found['layer']:.4g} for layer and {found['none']:.4g} for none. One "
        "seed cannot tell that from chance; for an interval and a verdict add "
        "this to the command:"
    )
    assert lines[-3] == "--seed 0 1 2 3 --resume"
    assert lines[-1] == str(folder / "comparison.png")
    assert "undecided" not in "".join(lines)
    # What it says works, and ends in a verdict.
    assert compare(experiment, folder, *lines[-3].split()) == 0
    *_, heading, _, row, _, path = capsys.readouterr().out.splitlines()
    assert path == lines[-1]
    assert "| mean of rival |" in heading and row.endswith("| disagrees |")


@pytest.mark.parametrize(
    ("lost", "ends", "came_out"),
    [
        (
            ["layer-0"],
            "0, 1; 1 of them diverged.",
            "was 1.01 for layer and 2.0",
        ),
        ([], "seeds 0, 1.", "was 1.005 for layer and 2.005 for none. "),
        (
            ["none-0", "none-1"],
            "; 2 of them diverged.",
            "table has the results",
        ),
        (
            [f"{kind}-{seed}" for kind in ("none", "layer") for seed in (0, 1)],
            "; all of them diverged.",
            "table has the results. Networks",
        ),
    ],
)
@pytest.mark.parametrize("smoke", [[], ["--smoke"]])
def test_networks_that_diverge_are_told(
    tmp_path, experiment, capsys, monkeypatch, lost, ends, came_out, smoke
):
    claim = claims.Claim(
        "layer ends lower than none",
        *("layer", "none", measures.end("test_nll", "test NLL")),
    )
    table = dataclasses.replace(claims.OF[experiment.name], claims=[claim])
    monkeypatch.setitem(claims.OF, experiment.name, table)

    def train(args, data, folder):
        if f"{args.norm}-{args.seed}" in lost:
            raise NonFiniteLossError("loss is nan")
        loss = {"none": 2, "layer": 1}[args.norm] + 0.01 * args.seed
        history = callbacks.History(folder / "history.csv", 10, 10)
        history.on_epoch_end(0, {"loss": loss, "val_loss": loss})
        return {"updates": 10, "train_nll": loss, "test_nll": loss}, history

    experiment = changed(experiment, train=train)
    flags = ["--batch-size", "128", "--seed", "0", "1", *smoke]
    code = compare(experiment, tmp_path / "runs", *flags)
    out = capsys.readouterr().out
    (trained,) = (line for line in out.splitlines() if "were trained" in line)
    assert trained.endswith(ends) and came_out in out
    diverged = "of them diverged" in out
    assert code == diverged == ("allow no verdict; a smaller" in out)
    assert diverged == ("everything works" not in out and "chance;" not in out)
    assert (", in the seed that both finished." in out) == (len(lost) == 1)


def test_the_seeds_that_are_advised_can_be_used():
    movements = cli.find("everyday-movements")
    for experiment, seeds, tuned, expected in (
        (script.EXPERIMENT, [3], False, [3, 4, 5, 6]),
        (script.EXPERIMENT, [0, 999], False, [0, 999, 1000, 1001]),
        (script.EXPERIMENT, [0, 999], True, [0, 999, 1002, 1003]),
        (movements, [0, 5], False, [0, 5, 6, 7]),
        (movements, [0, 7], False, [0, 7, 9, 10]),
    ):
        found = comparisons._more(experiment, seeds, 4, tuned)
        assert found == expected
        flags = ["--compare", "--seed", *map(str, found)]
        plans(experiment, *flags, *["--tune"] * tuned)
    all_persons = comparisons._more(movements, [5], 10, False)
    assert len({seed % claims.PERSONS for seed in all_persons}) == 8


@pytest.mark.full
@pytest.mark.on_tensorflow
def test_what_a_comparison_shows(tmp_path):
    """No warnings of TensorFlow that every machine or many models get."""
    quiet = environment(PYTHONUNBUFFERED="1")
    del quiet["TF_CPP_MIN_LOG_LEVEL"]
    folder = tmp_path / "run"
    flags = ["--compare", "--smoke", "--epochs", "1", "--units", "4"]
    flags += ["--output-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, script.__file__, *flags],
        env=quiet,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("6 networks will be trained")
    assert re.search("--smoke only shows that everything works", done.stdout)
    assert lines[-1] == str(folder / "comparison.png")
    assert not re.search("cuInit|retracing|cpu_feature", done.stdout)
