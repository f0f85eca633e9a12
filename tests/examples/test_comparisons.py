"""Comparisons: seeds, grids, floors, and results that are drawn again."""

import argparse
import csv
import dataclasses
import json

import numpy as np
import permutation_invariant_mnist as script
import pytest
import results
import tune
from changed import changed
from common import (
    callbacks,
    claims,
    cli,
    files,
    grids,
    plotting,
    runs,
    training,
)
from common.errors import InputError

# What a run ends with, by kind, learning rate, and gain or scale: the best
# settings of the two kinds differ.
BEST = {"none": (3e-3, 1.0), "layer": (3e-4, 0.1)}


def _loss(args):
    rate, second = BEST[args.norm]
    own = args.scale if args.norm == "none" else args.gain
    return (
        0.5
        + abs(np.log(args.learning_rate / rate))
        + abs(np.log((own or 1.0) / second))
        + 0.01 * args.seed
    )


@pytest.fixture
def trained():
    """The plans that were trained, with the images that they saw."""
    return []


@pytest.fixture
def experiment(trained, monkeypatch):
    """A comparison whose runs take no time."""
    # Of every run of a grid; that of a comparison is drawn.
    monkeypatch.setattr(plotting, "curves", lambda *args: None)
    name = script.EXPERIMENT.name
    table = dataclasses.replace(claims.OF[name], claims=())
    monkeypatch.setitem(claims.OF, name, table)

    def train(args, data, folder):
        trained.append((args, data))
        loss = _loss(args)
        history = callbacks.History(folder / "history.csv", 10, 10)
        for epoch in range(args.epochs):
            history.on_epoch_begin(epoch)
            found = loss + args.epochs - 1 - epoch
            history.on_epoch_end(epoch, {"loss": found, "val_loss": found})
        return {"train_nll": loss, "test_nll": loss}, history

    return dataclasses.replace(
        changed(
            script.EXPERIMENT,
            train=train,
            untrained=lambda args, data: {"test_nll": 2.5},
        ),
        panels=script.EXPERIMENT.panels[:1],
        columns={"training NLL": "train_nll", "test NLL": "test_nll"},
        kinds=("none", "layer"),
        compared={},
    )


def _rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def _run(experiment, folder, *flags):
    flags = ["--compare", "--epochs", "8", *flags]
    return cli.run(experiment, [*flags, "--output-dir", str(folder)])


def test_every_kind_gets_what_is_best_for_it(tmp_path, experiment, trained):
    assert _run(experiment, tmp_path / "runs", "--tune") == 0
    grid = [plan for plan, _ in trained if plan.seed in grids.SEEDS]
    assert {plan.epochs for plan in grid} == {4}  # Half of 8.
    rates = [3e-4, 1e-3, 3e-3]
    for norm, name, values in (
        ("none", "scale", [0.3, 1.0, 3.0]),
        ("layer", "gain", [0.1, 0.3, 1.0]),
    ):
        own = [plan for plan in grid if plan.norm == norm]
        found = [(plan.learning_rate, vars(plan)[name]) for plan in own]
        first = [(rate, value) for rate in rates for value in values]
        assert found[:9] == first
        # The best, on an edge, and all around it twice.
        around = {point: found.count(point) for point in found}
        assert around[BEST[norm]] == 2
        assert sorted(around.values())[-5:] == [2] * 5
    # At the best point, and seed by seed.
    rest = [plan for plan, _ in trained if plan.seed not in grids.SEEDS]
    assert [(p.seed, p.norm) for p in rest] == [
        (seed, norm)
        for seed in claims.seeds_of(experiment.name)
        for norm in ("none", "layer")
    ]
    for plan in rest:
        own = plan.scale if plan.norm == "none" else plan.gain
        assert (plan.learning_rate, own) == BEST[plan.norm]
        assert plan.epochs == 8

    rows = _rows(tmp_path / "runs" / "tuning.csv")
    assert [*rows[0]] == [
        *("norm", "learning_rate", "scale", "gain", "held-out loss"),
        *("seeds", "chosen"),
    ]
    chosen = [row for row in rows if row["chosen"]]
    assert [(r["norm"], r["scale"], r["gain"]) for r in chosen] == [
        *(("none", "1.0", ""), ("layer", "", "0.1"))
    ]
    assert {row["chosen"] for row in chosen} == {"yes"}
    for norm in ("none", "layer"):
        losses = [float(r["held-out loss"]) for r in rows if r["norm"] == norm]
        (least,) = (r for r in chosen if r["norm"] == norm)
        assert float(least["held-out loss"]) == min(losses)
    table = _rows(tmp_path / "runs" / "comparison.csv")
    assert [(r["norm"], r["learning rate"], r["grid"]) for r in table[:2]] == [
        *(("none", "0.003", ""), ("layer", "0.0003", ""))
    ]


@pytest.mark.parametrize("away", range(6))
def test_a_grid_grows_until_its_best_lies_inside(away):
    """Its edge moves towards a minimum so far away, three times at most."""
    target, tried = (1 + away, 0), []

    def score(point, seed):
        tried.append((point, seed))
        return sum(abs(a - b) for a, b in zip(point, target, strict=True))

    points = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)]
    best, scores = grids.search(points, score)
    assert best == (min(target[0], 4), 0)
    assert grids.is_on_edge(best, scores) == (away > 2)
    # No point twice with the same seed; the best and its neighbours twice.
    assert len(tried) == len(set(tried)) <= 9 + 3 * 3 + 5
    twice = {point for point, seed in tried if seed == grids.SEEDS[1]}
    assert twice == {best, *grids.neighbours(best)} & {*scores}


def test_a_second_seed_can_change_the_choice():
    """What was best by luck is not chosen, and the next has two seeds too."""

    def score(point, seed):
        lucky = point == (0, 0) and seed == grids.SEEDS[0]
        return -0.5 if lucky else abs(point[0] - 1) + abs(point[1])

    points = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)]
    best, scores = grids.search(points, score)
    assert best == (1, 0) and len(scores[best]) == 2
    assert not grids.is_on_edge(best, scores)


def test_the_values_of_a_grid():
    assert [grids.spaced(place) for place in range(-4, 4)] == [
        *(0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    ]


def test_an_edge_is_marked(tmp_path, experiment, monkeypatch):
    monkeypatch.setattr(grids, "EXTENSIONS", 0)
    drawn = []
    monkeypatch.setattr(
        plotting, "comparison", lambda *args: drawn.append(args[-1])
    )
    assert _run(experiment, tmp_path / "runs", "--tune", "--seed", "0") == 0
    assert drawn[-1] == [("none",), ("layer",)]
    table = _rows(tmp_path / "runs" / "comparison.csv")
    assert [row["grid"] for row in table[:2]] == ["on the edge"] * 2


def test_the_end_is_the_evaluation_that_the_validation_part_chose():
    rows = [{"val_loss": 3.0}, {"val_loss": 1.0}, {"val_loss": 2.0}]
    assert training.end(rows) is rows[2]
    for row, loss in zip(rows, (0.5, 0.6, 0.7), strict=True):
        row["choice_loss"] = loss
    assert training.end(rows) is rows[0]


def test_a_tuned_run_learns_from_less_and_is_tested_on_all(tmp_path):
    plan = cli.plans(
        script.EXPERIMENT,
        cli._parser(script.EXPERIMENT).parse_args(
            ["--compare", "--tune", "--smoke", "--seed", "0"]
        ),
    )[0]
    data = script.EXPERIMENT.load_data(plan)
    made = script.EXPERIMENT.make_task(plan, data)
    counts = [
        sum(len(labels) for _, labels in part)
        for part in (made.validation_data, made.choosing_data)
    ]
    assert counts == [384, 1408 // 12]
    assert made.updates_per_pass == (1408 - 1408 // 12) // 128
    plan.tune = False
    assert script.EXPERIMENT.make_task(plan, data).choosing_data is None
    plan.tune = True
    metrics, history = script.EXPERIMENT.train(plan, data, tmp_path)
    best = min(history.rows, key=lambda row: row["choice_loss"])
    assert metrics["test_nll"] == best["val_loss"]
    assert metrics["end_updates"] == best["updates"]


def test_kinds_that_lack_what_a_comparison_varies(
    tmp_path, experiment, trained
):
    experiment = dataclasses.replace(
        experiment,
        compared={"gain": (0.1, 1.0)},
        tuned=("scale", (0.3, 1.0, 3.0)),
    )
    flags = ["--tune", "--seed", "0"]
    for more in ([], ["--resume"]):
        assert _run(experiment, tmp_path / "runs", *flags, *more) == 0
    rest = [plan for plan, _ in trained if plan.seed not in grids.SEEDS]
    found = [(p.norm, p.gain, p.learning_rate) for p in rest]
    assert found == [
        *(("none", None, 3e-3), ("layer", 0.1, 3e-4), ("layer", 1.0, 3e-4))
    ]


@pytest.mark.parametrize("text", ["", "norm,chosen\nlayer,yes\n"])
def test_a_damaged_table_of_a_grid_is_told(tmp_path, experiment, capsys, text):
    folder = tmp_path / "runs"
    flags = ["--tune", "--seed", "0"]
    assert _run(experiment, folder, *flags) == 0
    (folder / "tuning.csv").write_text(text)
    with pytest.raises(SystemExit) as end:
        _run(experiment, folder, *flags, "--resume")
    assert end.value.code == 2
    assert "tuning.csv is not what --tune has written" in (
        capsys.readouterr().err
    )


def test_other_data_of_the_same_name_are_refused(tmp_path, capsys):
    record = {"compare": False, "data": "/a/MNIST/raw"}
    runs.open_folder(tmp_path / "run", record, resume=False)
    for other in ("/a/FashionMNIST/raw", "raw", "embedded"):
        with pytest.raises(InputError, match="holds another run"):
            runs.open_folder(
                tmp_path / "run", record | {"data": other}, resume=True
            )
    for there, here in (("raw", "/b/raw"), ("reviews", "/c/reviews")):
        name = "data" if there == "raw" else "eval_dir"
        folder = tmp_path / name
        runs.open_folder(folder, record | {name: there}, resume=False)
        runs.open_folder(folder, record | {name: here}, resume=True)
    for there in ("tfds", "embedded"):
        folder = tmp_path / there
        runs.open_folder(folder, record | {"data": there}, resume=False)
        with pytest.raises(InputError, match="holds another run"):
            runs.open_folder(
                folder, record | {"data": f"/d/{there}"}, resume=True
            )


def test_the_test_part_has_no_say(tmp_path, experiment, trained):
    assert _run(experiment, tmp_path / "runs", "--tune", "--seed", "0") == 0
    (whole,) = (data for plan, data in trained[-1:])
    for plan, data in trained:
        if plan.seed in grids.SEEDS:
            seen = {bytes(x) for x in (*data.train_images, *data.test_images)}
            assert seen.isdisjoint(map(bytes, whole.test_images))
            assert len(data.train_labels) == 1291
            assert len(data.test_labels) == 117
        else:
            assert len(data.test_labels) == 384


def test_a_diverging_point_is_not_chosen():
    inf = float("inf")
    points = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)]
    found = grids.search(points, lambda p, _: 3.0 if p == (1, 1) else inf)
    assert found[0] == (1, 1)
    assert grids.search(points, lambda *_: inf)[0] == (0, 0)


@pytest.mark.parametrize("name", tune.EXPERIMENTS)
def test_every_grid_has_as_many_points_for_each_kind(name):
    experiment = cli.find(name)
    args = cli._parser(experiment).parse_args(["--compare", "--tune"])
    planned = cli.plans(experiment, args)
    assert {plan.seed for plan in planned} == {*claims.seeds_of(name)}
    sizes = set()
    for plan in planned:
        points = [
            grids.settings(experiment, plan, point)
            for point in grids.start(experiment, plan.norm)
        ]
        sizes.add(len(points))
        # The preset's own settings are among those that are tried.
        own = {key: vars(plan)[key] for key in points[0]}
        usual = own | {k: 1.0 for k in ("gain", "scale") if k in own}
        assert usual in points
    assert sizes == {9}


def test_help_says_what_tune_tries(capsys):
    with pytest.raises(SystemExit):
        script.main(["--help"])
    out = capsys.readouterr().out
    assert "--learning-rate times 0.3 1 3" in out
    assert "--gain 0.1 0.3 1" in out and "--scale 0.3 1 3 instead (none)" in out
    assert "from 100 on with --compare" in " ".join(out.split())


@pytest.mark.parametrize(
    ("flags", "seeds"),
    [
        ("--compare", [0]),
        ("--compare --preset paper", [*range(100, 110)]),
        ("--compare --preset paper --seed 7", [7]),
        ("--compare --preset paper --smoke", [0]),
        ("--compare --tune --seed 3 4", [3, 4]),
        ("--preset paper", [0]),
    ],
)
def test_seeds_by_default(flags, seeds):
    args = cli._parser(script.EXPERIMENT).parse_args(flags.split())
    planned = cli.plans(script.EXPERIMENT, args)
    assert list(dict.fromkeys(plan.seed for plan in planned)) == seeds


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--tune", "--tune belongs to --compare"),
        ("--compare --tune-epochs 3", "--tune-epochs belongs to --tune"),
        ("--compare --tune --gain 1", "--tune chooses --gain; leave it out"),
        ("--compare --tune --scale 1", "--tune chooses --scale; leave it out"),
        ("--compare --tune --seed 1000", "1000 is a seed of --tune"),
        (
            "--compare --tune --batch-size 1300",
            "--batch-size 1300 is more than the 1291 training images",
        ),
    ],
)
def test_bad_flags(capsys, tmp_path, flags, message):
    with pytest.raises(SystemExit) as end:
        script.main([*flags.split(), "--output-dir", str(tmp_path / "run")])
    assert end.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_killed_grid_goes_on(tmp_path, experiment, trained, capsys):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert _run(experiment, whole, "--tune", "--seed", "0", "1") == 0
    count = len(trained)

    def dies(args, data, folder):
        if len(trained) == count + 11:
            raise KeyboardInterrupt
        return experiment.train(args, data, folder)

    dying = changed(experiment, train=dies)
    with pytest.raises(KeyboardInterrupt):
        _run(dying, killed, "--tune", "--seed", "0", "1")
    assert (
        _run(experiment, killed, "--tune", "--seed", "0", "1", "--resume") == 0
    )
    assert len(trained) == 2 * count
    for name in ("tuning.csv", "comparison.csv", "comparison.json"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes()


def test_seeds_can_be_added(tmp_path, experiment, trained, capsys):
    folder = tmp_path / "runs"
    assert _run(experiment, folder, "--seed", "0", "1") == 0
    with pytest.raises(SystemExit):
        _run(experiment, folder, "--seed", "0", "1", "2")
    assert "add --resume" in capsys.readouterr().err
    assert json.loads((folder / "args.json").read_text())["seed"] == [0, 1]
    for other in (["1", "2"], ["0"]):
        with pytest.raises(SystemExit):
            _run(experiment, folder, "--seed", *other, "--resume")
        assert "seed [0, 1] there" in capsys.readouterr().err
    assert _run(experiment, folder, "--seed", "0", "1", "2", "--resume") == 0
    assert len(trained) == 6
    assert json.loads((folder / "args.json").read_text())["seed"] == [0, 1, 2]
    assert "± 0.01" in _rows(folder / "comparison.csv")[0]["test NLL"]


def test_floors_stand_in_the_table(tmp_path, experiment, capsys):
    assert _run(experiment, tmp_path / "runs", "--seed", "0") == 0
    rows = _rows(tmp_path / "runs" / "comparison.csv")
    names = [row["norm"] for row in rows]
    assert names == [
        *("none", "layer", "chance", "logistic regression of 1,408"),
        *("none, untrained", "layer, untrained"),
    ]
    cells = {row["norm"]: row["test NLL"] for row in rows}
    assert cells["chance"] == "2.303"  # log 10
    assert 0.05 < float(cells["logistic regression of 1,408"]) < 0.5
    assert cells["none, untrained"] == "2.5"
    assert rows[2]["training NLL"] == ""
    assert "| chance " in capsys.readouterr().out


def test_kept_results_are_drawn_again(tmp_path, experiment, monkeypatch):
    folder, kept = tmp_path / "runs", tmp_path / "kept"
    assert _run(experiment, folder, "--tune", "--seed", "0", "1") == 0
    monkeypatch.setattr(results, "KEPT", kept)
    monkeypatch.setattr(script, "EXPERIMENT", experiment)
    assert results.main(["keep", str(folder), "digits"]) == 0
    found = {p.name for p in kept.rglob("*") if p.is_file()}
    assert found == {
        *("settings.json", "history.csv", "metrics.csv", "tuning.csv")
    }
    assert results.main(["draw"]) == 0
    own = kept / "digits"
    for name in ("comparison.csv", "comparison.png"):
        assert (own / name).read_bytes() == (folder / name).read_bytes()
    figure = tmp_path / "figures" / "digits.png"
    assert figure.read_bytes() == (folder / "comparison.png").read_bytes()


def test_what_is_kept_goes_on_elsewhere(
    tmp_path, experiment, trained, monkeypatch
):
    """More seeds from the small files alone, with the data in another place."""
    data = [tmp_path / place / "mnist" for place in ("here", "there")]
    for path in data:
        path.mkdir(parents=True)
    load = experiment.load_data
    experiment = changed(
        experiment,
        load_data=lambda args: load(
            argparse.Namespace(**vars(args) | {"data": "embedded"})
        ),
    )
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")
    first = ["--tune", "--data", str(data[0]), "--seed", "0"]
    assert _run(experiment, tmp_path / "first", *first) == 0
    assert results.main(["keep", str(tmp_path / "first"), "digits"]) == 0
    second = tmp_path / "second"
    assert results.main(["restore", "digits", str(second)]) == 0
    trained.clear()
    more = ["--tune", "--data", str(data[1]), "--seed", "0", "1", "--resume"]
    assert _run(experiment, second, *more) == 0
    # Nothing of the grid or of the first seed again, and at the best points.
    assert [(plan.norm, plan.seed) for plan, _ in trained] == [
        *(("none", 1), ("layer", 1))
    ]
    for plan, _ in trained:
        own = plan.scale if plan.norm == "none" else plan.gain
        assert (plan.learning_rate, own) == BEST[plan.norm]
    table = _rows(second / "comparison.csv")
    assert table[0]["training NLL"] == "0.505 ± 0.0071"
    tuning = [tmp_path / name / "tuning.csv" for name in ("first", "second")]
    assert tuning[0].read_bytes() == tuning[1].read_bytes()


def test_no_path_of_a_machine_is_kept(tmp_path, experiment):
    folder, kept = tmp_path / "runs", tmp_path / "kept"
    assert _run(experiment, folder, "--seed", "0") == 0
    for path in folder.rglob("args.json"):
        record = files.read_json(path)
        files.write_json(path, record | {"data": "/somewhere/mnist"})
    results.keep(folder, kept)
    settings = files.read_json(kept / "settings.json")
    assert settings["args"]["data"] == "mnist"
    assert settings["args of runs"]["all"]["data"] == "mnist"
    assert not any("somewhere" in p.read_text() for p in kept.iterdir())


def test_what_is_no_comparison_is_told(tmp_path, capsys, monkeypatch):
    kept = tmp_path / "kept"
    monkeypatch.setattr(results, "KEPT", kept)
    source = tmp_path / "grid"
    source.mkdir()
    files.write_csv(source / "tuning.csv", [{"norm": "layer"}])
    results.keep(source, kept / "grid")
    for flags, message in (
        (["keep", str(tmp_path), "x"], "has no comparison.json and no"),
        (["restore", "x", str(tmp_path / "runs")], "one of grid, received x"),
        (["keep", str(tmp_path), "../x"], "expected letters, digits, - and _"),
        (["draw", "x"], "NAME: expected one of grid, received x"),
        (["draw", "grid"], "grid has no finished seed to draw"),
    ):
        with pytest.raises(SystemExit) as end:
            results.main(flags)
        assert end.value.code == 2
        assert message in capsys.readouterr().err
    assert [path.name for path in kept.iterdir()] == ["grid"]


def test_titles_name_data_sizes_and_seeds(tmp_path, experiment, monkeypatch):
    titles = []
    draw = plotting.comparison
    monkeypatch.setattr(
        plotting,
        "comparison",
        lambda *args: [titles.append(args[-2]), draw(*args)],
    )
    assert _run(experiment, tmp_path / "runs", "--seed", "4", "6") == 0
    assert titles[-1] == (
        "scikit-learn's digits, 8 x 8, 1,408 training and 384 test images\n"
        "256 units, batch size 128, 8 epochs, seeds 4, 6"
    )
    title = runs.title(
        "data",
        cli.plans(experiment, cli._parser(experiment).parse_args([]))[0],
        ["batch_size"],
    )
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


def test_verdicts_are_kept(tmp_path):
    files.write_csv(tmp_path / "tuning.csv", [{"norm": "layer"}])
    files.write_csv(tmp_path / "verdicts.csv", [{"verdict": "undecided"}])
    results.keep(tmp_path, tmp_path / "kept")
    kept = files.read_table(tmp_path / "kept" / "verdicts.csv")
    assert [*kept] == [{"verdict": "undecided"}]
