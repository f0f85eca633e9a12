"""Results that are kept, drawn again, and gone on with elsewhere."""

import argparse
import itertools
import sys

import permutation_invariant_mnist as script
import pytest
import results
from changed import changed
from common import comparisons, files
from common.errors import InputError
from scripts import refusal, rows
from untrained_comparisons import BEST, compare


@pytest.fixture
def digits(tmp_path, experiment, monkeypatch):
    """Where a comparison of one seed, in the folder runs, is kept."""
    folder, kept = tmp_path / "runs", tmp_path / "kept"
    assert compare(experiment, folder, "--seed", "0") == 0
    monkeypatch.setattr(results, "KEPT", kept)
    results.keep(folder, kept / "digits")
    return kept / "digits"


def test_kept_results_are_drawn_again(tmp_path, experiment, monkeypatch):
    folder, kept = tmp_path / "runs", tmp_path / "kept"
    assert compare(experiment, folder, "--tune", "--seed", "0", "1") == 0
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
    assert compare(experiment, tmp_path / "first", *first) == 0
    assert results.main(["keep", str(tmp_path / "first"), "digits"]) == 0
    second = tmp_path / "second"
    assert results.main(["restore", "digits", str(second)]) == 0
    trained.clear()
    more = ["--tune", "--data", str(data[1]), "--seed", "0", "1", "--resume"]
    assert compare(experiment, second, *more) == 0
    # Nothing of the grid or of the first seed again, and at the best points.
    assert [(plan.norm, plan.seed) for plan, _ in trained] == [
        *(("none", 1), ("layer", 1))
    ]
    for plan, _ in trained:
        own = plan.scale if plan.norm == "none" else plan.gain
        assert (plan.learning_rate, own) == BEST[plan.norm]
    table = rows(second / "comparison.csv")
    assert table[0]["training NLL"] == "0.505 ± 0.0071"
    tuning = [tmp_path / name / "tuning.csv" for name in ("first", "second")]
    assert tuning[0].read_bytes() == tuning[1].read_bytes()


def test_no_path_of_a_machine_is_kept(tmp_path, experiment):
    folder, kept = tmp_path / "runs", tmp_path / "kept"
    assert compare(experiment, folder, "--seed", "0") == 0
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
        assert message in refusal(capsys, results.main, *flags)
    assert [path.name for path in kept.iterdir()] == ["grid"]


def test_verdicts_are_kept(tmp_path):
    files.write_csv(tmp_path / "tuning.csv", [{"norm": "layer"}])
    files.write_csv(tmp_path / "verdicts.csv", [{"verdict": "undecided"}])
    results.keep(tmp_path, tmp_path / "kept")
    kept = files.read_table(tmp_path / "kept" / "verdicts.csv")
    assert [*kept] == [{"verdict": "undecided"}]


# Where a file that is kept has the name of a run.
NAMED_IN = {
    "settings.json": (
        lambda s, name: s["args of runs"]["each"].update({name: None}),
        lambda s, name: s["environment of runs"]["each"].update({name: {}}),
        lambda s, name: s["comparison"]["runs"][0].update(folder=name),
    ),
    "history.csv": (lambda rows, name: rows[0].update(run=name),),
    "metrics.csv": (lambda rows, name: rows[0].update(run=name),),
}


@pytest.mark.promise("a name in a file of results")
def test_names_from_a_file_stay_in_the_folder(
    tmp_path, experiment, digits, capsys
):
    before = sorted(tmp_path.rglob("*"))
    outside = ("../x", str(tmp_path / "x"), "x/y", "..", ".", "", "x\\y")
    for file, changes in NAMED_IN.items():
        path = digits / file
        whole, is_table = path.read_text(), path.suffix == ".csv"
        for change, name in itertools.product(changes, outside):
            content = (files.read_table if is_table else files.read_json)(path)
            change(content, name)
            (files.write_csv if is_table else files.write_json)(path, content)
            for flags in (
                ["restore", "digits", str(tmp_path / "new")],
                ["draw", "digits"],
            ):
                message = refusal(capsys, results.main, *flags)
                assert f"{path}: expected a name of letters" in message
                assert f"received {name!r}" in message
            path.write_text(whole)
    # The same for a comparison that is not kept yet.
    folder = tmp_path / "runs"
    path = folder / "comparison.json"
    record = files.read_json(path)
    for name in (*outside, 3):
        record["runs"][0]["folder"] = name
        files.write_json(path, record)
        message = refusal(capsys, results.main, "keep", str(folder), "other")
        assert f"{path}: expected a name of letters" in message
        with pytest.raises(InputError, match=r"comparison\.json: expected a n"):
            comparisons.report(experiment, folder)
    files.write_json(path, record | {"runs": []})
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_kept_may_be_something_else(digits, capsys):
    """A module's name is no experiment, and nothing imports it."""
    path = digits / "settings.json"
    whole = files.read_json(path)
    foreign = whole["comparison"] | {"experiment": "antigravity"}
    for settings, message in (
        (whole | {"comparison": foreign}, "received 'antigravity'"),
        (whole | {"args": None}, "digits was not written by keep (File"),
        ([], "digits was not written by keep (TypeError("),
        ({}, "digits was not written by keep (KeyError("),
    ):
        files.write_json(path, settings)
        assert message in refusal(capsys, results.main, "draw", "digits")
    path.write_text("{")
    message = refusal(capsys, results.main, "draw", "digits")
    assert f"{path} cannot be read: Expecting" in message
    assert "antigravity" not in sys.modules
