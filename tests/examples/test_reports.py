"""Figures, sentences and results that are kept, also of runs that are odd."""

import json
import stat
import zipfile
from argparse import Namespace

import pytest
import results
from common import plotting, report
from common.errors import InputError
from matplotlib import pyplot as plt
from scripts import refusal

PANELS = [
    report.Panel("loss", "loss", log=True),
    report.Panel("error (%)", lambda row: row["error"], log=True),
]

FINISHED = {"test_nll": 1.0}


def _run(*losses, metrics=FINISHED):
    rows = [
        {"epoch": epoch, "updates": 2 * epoch, "loss": loss, "error": loss}
        for epoch, loss in enumerate(losses, 1)
    ]
    return report.Result(metrics, rows)


@pytest.fixture
def drawn(monkeypatch):
    """The figures, in place of what closes them."""
    figures = []
    monkeypatch.setattr(plt, "close", figures.append)
    yield figures
    monkeypatch.undo()
    plt.close("all")


def test_lines_are_medians_and_columns_the_second_key(tmp_path, drawn):
    groups = {
        ("none", 128): [_run(1.0, 0.5), _run(3.0, 1.5, 0.1), _run(100.0, 50.0)],
        ("none", 4): [_run(0.02)],
        ("layer", 128): [_run(0.7, 0.2)],
    }
    plotting.comparison(groups, ["batch size"], PANELS, tmp_path / "f.png")
    (figure,) = drawn
    top_left, top_right, bottom_left, _ = figure.axes
    none, layer = top_left.get_lines()
    # Up to the shorter run; the band is the middle half.
    assert list(none.get_ydata()) == [3.0, 1.5]
    (band,) = top_left.collections
    assert band.get_datalim(top_left.transData).intervaly.tolist() == [1, 51.5]
    assert none.get_color() == top_right.get_lines()[0].get_color()
    assert none.get_color() != layer.get_color()
    assert none.get_linestyle() != layer.get_linestyle()
    assert {none.get_marker(), layer.get_marker()} == {"s", "d"}
    assert top_left.get_title() == "batch size 128"
    assert top_right.get_title() == "batch size 4"
    assert top_left.get_ylabel() == "loss"
    assert bottom_left.get_ylabel() == "error (%)"
    assert bottom_left.get_xlabel() == "epoch"
    assert top_left.get_yscale() == "log"


def test_a_diverged_run_hides_no_other(tmp_path, drawn):
    groups = {
        ("none",): [_run(1.0, 0.5), _run(metrics=None)],
        ("layer",): [_run(0.7, metrics=None)],
    }
    plotting.comparison(groups, [], PANELS, tmp_path / "f.png")
    none, layer = drawn[0].axes[0].get_lines()
    assert list(none.get_ydata()) == [1.0, 0.5]
    assert none.get_label() == "none (1 of 2 diverged)"
    assert list(layer.get_ydata()) == [0.7]
    assert layer.get_label() == "layer (1 of 1 diverged)"


def test_the_sentence_has_the_paired_difference():
    args = Namespace(varied={"norm": [], "seed": [0, 1, 2]}, smoke=False)

    def results(*values):
        return [report.Result({"test": value}, []) for value in values]

    groups = {("none",): results(1.0, 2.0, 3.0)}
    groups["layer",] = results(0.5, 1.4, 2.6)
    said = report.sentence(args, groups, {"own": "train_a", "loss": "test"})
    # Differences of -0.5, -0.6 and -0.4, and Student's t for two degrees.
    half = 4.302653 * 0.1 / 3**0.5
    low, high = -0.5 - half, -0.5 + half
    assert f"minus none -0.5 (95 % interval {low:.2g} to {high:.2g})" in said
    assert "With 3 seeds the loss" in said and "none 2 ± 1" in said
    args.varied["seed"] = [5]
    groups = {key: own[:1] for key, own in groups.items()}
    said = report.sentence(args, groups, {"loss": "test"})
    assert said.endswith("--seed 5 6 7 --resume")
    groups["layer",] = [report.Result(None, [])]
    said = report.sentence(args, groups, {"loss": "test"})
    assert "layer diverged (1)" in said and "smaller --learning-rate" in said


def test_the_race_is_to_the_rivals_best():
    rival, panel = [_run(3, 1, 2)], report.Panel("loss", "loss")
    assert report._race([_run(2, 2, 1)], rival, panel) == "6"
    assert report._race(rival, rival, panel) == "4"
    late = report._race([_run(2, 2, 2)], rival, panel)
    assert late == "not reached (1 of 1)"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Where results are kept."""
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


@pytest.mark.parametrize("path", sorted(results.KEPT.glob("*.zip")))
def test_what_is_kept_is_whole(path):
    texts, comment = results.read(path)
    assert comment.startswith("measured at commit 2f88381 with --tune, which")
    assert {results.SETTINGS, results.HISTORY, results.METRICS} <= {*texts}
    settings = json.loads(texts[results.SETTINGS])
    assert settings["args"]["compare"] is True
    for name in texts.keys() - {results.SETTINGS}:
        assert results.table(path, name), name
    assert "agrees" in results.show(path) or "decided" in results.show(path)


def _written(path, *members):
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in members:
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)


def _link():
    info = zipfile.ZipInfo("link")
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


HOSTILE = {
    "above": ([("../x", "1")], "expected files with names of letters"),
    "absolute": ([("/tmp/x", "1")], "expected files with names of letters"),
    "folder": ([("x/y", "1")], "expected files with names of letters"),
    "link": ([(_link(), "/etc/passwd")], "expected files with names of lett"),
    "twice": ([("a", "1"), ("a", "2")], "with different names, received 2"),
    "many": ([(f"a{n}", "1") for n in range(17)], "different names, receiv"),
    "large": ([("a", bytes(2**24 + 1))], "unpacks to more than 16 MiB"),
    "binary": ([("a", b"\xff\xfe\0")], "cannot be read"),
}


@pytest.mark.promise("an archive of results")
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused(name, kept, tmp_path, capsys):
    members, message = HOSTILE[name]
    _written(kept / "own.zip", *members)
    before = sorted(tmp_path.rglob("*"))
    assert message in refusal(capsys, results.main, "own")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_archive_is_refused(kept, capsys):
    path = kept / "own.zip"
    _written(path, (results.HISTORY, "run,a\nx,1\n"), ("a", "1" * 500))
    whole = path.read_bytes()
    flipped = bytes([*whole[:40], whole[40] ^ 255, *whole[41:]])
    for content in (b"", whole[:60], whole[:-30], flipped):
        path.write_bytes(content)
        with pytest.raises(InputError, match="own.zip"):
            results.read(path)
    for text in ("run,a\nx,1,2\n", "run,a\nx\n", "a\n" + "9" * 200_000):
        _written(path, (results.HISTORY, text))
        with pytest.raises(InputError, match="history.csv"):
            results.table(path, results.HISTORY)
    line = refusal(capsys, results.main, "other")
    assert line.endswith("NAME: expected one of own, received other")
