"""Grids of settings, which --tune tries before a comparison."""

import dataclasses

import permutation_invariant_mnist as script
import pytest
import tune
from changed import changed
from common import claims, cli, files, grids, plotting, selection, training
from scripts import plans, refusal, rows
from untrained_comparisons import BEST, compare


def test_every_kind_gets_what_is_best_for_it(tmp_path, experiment, trained):
    assert compare(experiment, tmp_path / "runs", "--tune") == 0
    grid = [plan for plan, _ in trained if plan.seed in grids.SEEDS]
    assert {plan.decay for plan, _ in trained} == {"cosine"}
    # The best three, with both seeds; the others have half of 8 epochs.
    longer = [plan for plan in grid if plan.epochs != 4]
    assert {plan.epochs for plan in longer} == {8}
    assert [plan.seed for plan in longer] == 6 * [*grids.SEEDS]
    grid = [plan for plan in grid if plan.epochs == 4]
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

    of_grid = [
        files.read_json(path)
        for path in (tmp_path / "runs" / selection.FOLDER).glob("*/args.json")
    ]
    assert {record["compare"] for record in of_grid} == {False}
    found = rows(tmp_path / "runs" / "tuning.csv")
    assert [*found[0]] == [
        *("norm", "learning_rate", "scale", "gain", "held-out loss"),
        *("seeds", "at full length", "chosen"),
    ]
    chosen = [row for row in found if row["chosen"]]
    assert [(r["norm"], r["scale"], r["gain"]) for r in chosen] == [
        *(("none", "1.0", ""), ("layer", "", "0.1"))
    ]
    assert {row["chosen"] for row in chosen} == {"yes"}
    for norm in ("none", "layer"):
        losses = [float(r["held-out loss"]) for r in found if r["norm"] == norm]
        (least,) = (r for r in chosen if r["norm"] == norm)
        assert float(least["held-out loss"]) == min(losses)
        full = [r["at full length"] for r in found if r["norm"] == norm]
        assert sorted(full)[-4] == "" < sorted(full)[-3]
        assert least["at full length"] == min(filter(None, full))
    table = rows(tmp_path / "runs" / "comparison.csv")
    assert [(r["norm"], r["learning rate"], r["grid"]) for r in table[:2]] == [
        *(("none", "0.003", ""), ("layer", "0.0003", ""))
    ]


def test_runs_of_full_length_decide(tmp_path, experiment, trained):
    """What is best after half of the epochs may not be so at their end."""

    def late(args, data, folder):
        metrics, history = experiment.train(args, data, folder)
        first = args.learning_rate == BEST[args.norm][0]
        for row in history.rows:
            row["val_loss"] += 2 * (first and args.epochs == 8)
        files.write_csv(folder / "history.csv", history.rows)
        return metrics, history

    other = changed(experiment, train=late)
    flags = ("--tune", "--seed", "0")
    assert compare(other, tmp_path / "runs", *flags) == 0
    for plan, _ in trained[-2:]:
        assert plan.learning_rate != BEST[plan.norm][0]
    table = rows(tmp_path / "runs" / "tuning.csv")
    for norm in ("none", "layer"):
        own = [row for row in table if row["norm"] == norm]
        (best,) = (row for row in own if row["chosen"])
        shorter = min(own, key=lambda row: float(row["held-out loss"]))
        assert shorter is not best and shorter["at full length"]
    # Where all runs have the full length, none is repeated.
    flags += ("--tune-epochs", "8")
    assert compare(other, tmp_path / "whole", *flags) == 0
    table = rows(tmp_path / "whole" / "tuning.csv")
    assert {r["at full length"] for r in table} == {""}
    grid = [plan for plan, _ in trained if plan.seed in grids.SEEDS]
    assert {plan.epochs for plan in grid[-9:]} == {8}


def test_biases_that_forget_late_are_tried_for_every_kind(
    tmp_path, experiment, trained
):
    """Here they are better for layer, and only at another gain than without."""

    def train(args, data, folder):
        metrics, history = experiment.train(args, data, folder)
        helps = args.norm == "layer" and args.forget_steps
        for row in history.rows:
            row["val_loss"] -= 3 * min(args.gain or 0, 1) * bool(helps)
        files.write_csv(folder / "history.csv", history.rows)
        return metrics, history

    other = dataclasses.replace(
        changed(experiment, train=train), memory=lambda args: 7
    )
    for steps, flags in ((7, ()), (50, ("--forget-steps", "50"))):
        folder = tmp_path / f"{steps}"
        assert compare(other, folder, "--tune", "--seed", "0", *flags) == 0
        grid = [plan for plan, _ in trained if plan.seed == grids.SEEDS[0]]
        for norm in ("none", "layer"):
            own = [p for p in grid if p.norm == norm and p.epochs == 4]
            found = [p.forget_steps for p in own[:18]]
            assert found.count(None) == found.count(steps) == 9
        none, layer = (plan for plan, _ in trained[-2:])
        assert none.forget_steps is None and layer.forget_steps == steps
        # The point with the other biases has both seeds, too.
        table = rows(folder / "tuning.csv")
        (best,) = (r for r in table if r["chosen"] and r["norm"] == "layer")
        assert best["forget_steps"] == f"{steps}" and float(best["gain"]) > 0.1
        same = [
            r["seeds"]
            for r in table
            if (r["learning_rate"], r["gain"], r["norm"])
            == (best["learning_rate"], best["gain"], "layer")
        ]
        assert same == ["2", "2"]
        shown = rows(folder / "comparison.csv")
        assert [r["forget steps"] for r in shown[:2]] == ["", f"{steps}"]
        trained.clear()


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("draw_mnist", "--glimpses 1"),
        ("handwriting_generation", "--length 1"),
        ("attentive_reader", "--length 1"),
        ("sequential_mnist", "--data . --pool 28"),
    ],
)
def test_biases_of_a_single_step_are_those_of_two(name, flags):
    """The least that the initializer takes, in the middle of a grid."""
    experiment = cli.find(name)
    flags = [*flags.split(), "--compare", "--tune"]
    for plan in plans(experiment, *flags):
        assert experiment.memory(plan) == 1
        for point in grids.start(experiment, plan.norm):
            found = grids.settings(experiment, plan, point)
            assert found["forget_steps"] == (2 if point[2] else None)


@pytest.mark.parametrize("away", range(6))
def test_a_grid_grows_until_its_best_lies_inside(away):
    """Its edge moves towards a minimum so far away, three times at most."""
    target, tried = (1 + away, 0), []

    def score(point, seed):
        tried.append((point, seed))
        return sum(abs(a - b) for a, b in zip(point, target, strict=True))

    points = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)]
    best, scores, _ = grids.search(points, score)
    assert best == (min(target[0], 4), 0)
    assert grids.is_on_edge(best, scores) == (away > 2)
    # No point twice with the same seed; the best and its neighbours twice.
    assert len(tried) == len(set(tried)) <= 9 + 3 * 3 + 5
    twice = {point for point, seed in tried if seed == grids.SEEDS[1]}
    assert twice == {best, *grids.neighbours(best)} & {*scores}


@pytest.mark.parametrize("away", range(6))
def test_a_grid_grows_around_the_best_of_full_length(away):
    """Short runs are best in the middle, whole ones so far to the right."""
    tried, whole = [], []

    def score(point, seed):
        tried.append((point, seed))
        return max(0.1 * point[0], -0.25 * point[0]) + abs(point[1])

    def full(point, seed):
        whole.append((point, seed))
        return abs(point[0] - away) + abs(point[1])

    points = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)]
    best, scores, finals = grids.search(points, score, full)
    # The first finalists are the middle three; of those on the right the
    # next one follows, which is better by short runs than the one on the left.
    middle = [(-1, 0), (0, 0), (1, 0)]
    assert sorted(finals) == [*middle, (2, 0)][: 3 + (away > 0)]
    assert best == (min(away, 2), 0)
    assert not grids.is_on_edge(best, scores)
    for found in (tried, whole):
        assert len(found) == len(set(found))


def test_a_second_seed_can_change_the_choice():
    """What was best by luck is not chosen, and the next has two seeds too."""

    def score(point, seed):
        lucky = point == (0, 0) and seed == grids.SEEDS[0]
        return -0.5 if lucky else abs(point[0] - 1) + abs(point[1])

    points = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)]
    best, scores, _ = grids.search(points, score)
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
    assert compare(experiment, tmp_path / "runs", "--tune", "--seed", "0") == 0
    assert drawn[-1] == [("none",), ("layer",)]
    table = rows(tmp_path / "runs" / "comparison.csv")
    assert [row["grid"] for row in table[:2]] == ["on the edge"] * 2


def test_the_end_is_the_evaluation_that_the_validation_part_chose():
    rows = [{"val_loss": 3.0}, {"val_loss": 1.0}, {"val_loss": 2.0}]
    assert training.end(rows) is rows[2]
    for row, loss in zip(rows, (0.5, 0.6, 0.7), strict=True):
        row["choice_loss"] = loss
    assert training.end(rows) is rows[0]


def test_a_tuned_run_learns_from_less_and_is_tested_on_all(tmp_path):
    flags = ("--compare", "--tune", "--smoke", "--seed", "0")
    plan = plans(script.EXPERIMENT, *flags)[0]
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
        assert compare(experiment, tmp_path / "runs", *flags, *more) == 0
    rest = [plan for plan, _ in trained if plan.seed not in grids.SEEDS]
    found = [(p.norm, p.gain, p.learning_rate) for p in rest]
    assert found == [
        *(("none", None, 3e-3), ("layer", 0.1, 3e-4), ("layer", 1.0, 3e-4))
    ]


@pytest.mark.parametrize("text", ["", "norm,chosen\nlayer,yes\n"])
def test_a_damaged_table_of_a_grid_is_told(tmp_path, experiment, capsys, text):
    folder = tmp_path / "runs"
    flags = ["--tune", "--seed", "0"]
    assert compare(experiment, folder, *flags) == 0
    (folder / "tuning.csv").write_text(text)
    told = refusal(
        capsys,
        lambda given: compare(experiment, folder, *given),
        *flags,
        "--resume",
    )
    assert "tuning.csv was not written by --tune" in told


def test_the_test_part_has_no_say(tmp_path, experiment, trained):
    assert compare(experiment, tmp_path / "runs", "--tune", "--seed", "0") == 0
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
    planned = plans(experiment, "--compare", "--tune")
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
    assert sizes == {9 if experiment.memory is None else 18}


def test_help_says_what_tune_tries(capsys):
    with pytest.raises(SystemExit):
        script.main(["--help"])
    out = capsys.readouterr().out
    assert "--learning-rate times 0.3 1 3" in out
    assert "--gain 0.1 0.3 1" in out and "--scale 0.3 1 3 instead (none)" in out
    assert "--tune or --preset paper from 100 on" in " ".join(out.split())
