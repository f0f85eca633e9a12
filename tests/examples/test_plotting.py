"""Figures, also of results that are odd."""

import importlib
from argparse import Namespace

import numpy as np
import pytest
import tune
from common import plotting, report
from matplotlib import pyplot as plt

PANELS = [
    report.Panel("loss", "loss", log=True),
    report.Panel("error (%)", lambda row: row["error"], log=True),
]

FINISHED = {"test_nll": 1.0}


def _run(folder, name, losses, metrics=FINISHED):
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
        ("none", 128): [
            _run(tmp_path, "a", [1.0, 0.5]),
            _run(tmp_path, "b", [3.0, 1.5, 0.1]),
            _run(tmp_path, "e", [100.0, 50.0]),
        ],
        ("none", 4): [_run(tmp_path, "c", [0.02])],
        ("layer", 128): [_run(tmp_path, "d", [0.7, 0.2])],
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
        ("none",): [
            _run(tmp_path, "a", [1.0, 0.5]),
            _run(tmp_path, "b", [], None),
        ],
        ("layer",): [_run(tmp_path, "c", [0.7], None)],
    }
    plotting.comparison(groups, [], PANELS, tmp_path / "f.png")
    none, layer = drawn[0].axes[0].get_lines()
    assert list(none.get_ydata()) == [1.0, 0.5]
    assert none.get_label() == "none (1 of 2 diverged)"
    assert list(layer.get_ydata()) == [0.7]
    assert layer.get_label() == "layer (1 of 1 diverged)"


def test_figures_of_diverged_runs_are_whole(tmp_path, drawn):
    kinds = ("layer-channels", "batch-everywhere", "symmetric")
    lost = [_run(tmp_path, "a", [], None)]
    groups = {(kind, 4): lost for kind in kinds}
    plotting.comparison(groups, ["batch size"], PANELS, tmp_path / "f.png")
    groups["none", 128] = [_run(tmp_path, "b", [1.0, 0.5])]
    plotting.comparison(groups, ["batch size"], PANELS, tmp_path / "f.png")
    for figure, labels in zip(drawn, (3, 4), strict=True):
        (legend,) = figure.legends
        assert len(legend.get_texts()) == labels
        assert legend.get_window_extent().width <= figure.bbox.width
        assert not figure.axes[0].get_xticks().size
    told = [[text.get_text() for text in axis.texts] for axis in drawn[0].axes]
    assert told == 2 * [["no finite values"]]
    told = [[text.get_text() for text in axis.texts] for axis in drawn[1].axes]
    assert told == 2 * [["no finite values"], []]
    assert not drawn[0].axes[0].get_yticks().size
    # The first column has the scale of the second.
    assert drawn[1].axes[0].get_yticks().size


def test_every_kind_has_a_style_of_its_own():
    scripts = map(importlib.import_module, tune.EXPERIMENTS)
    kinds = {kind for script in scripts for kind in script.KINDS}
    own = {plotting._SAME.get(kind, kind) for kind in kinds}
    assert own == set(plotting._STYLES)
    for parts in zip(*plotting._STYLES.values(), strict=True):
        assert len(set(parts)) == len(own)
    # The same whatever else is drawn.
    assert plotting.style_of("layer") == {
        "color": "#0072B2",
        "linestyle": "-.",
        "marker": "d",
    }


def test_a_kind_without_the_second_key_stands_in_every_column(tmp_path, drawn):
    groups = {
        ("none", None): [_run(tmp_path, "a", [0.5])],
        ("batch", 0.1): [_run(tmp_path, "b", [0.4])],
        ("batch", 1.0): [_run(tmp_path, "c", [0.3])],
    }
    path = tmp_path / "f.png"
    plotting.comparison(groups, ["gain"], PANELS, path, "updates")
    axes = drawn[0].axes
    assert [axis.get_title() for axis in axes[:2]] == ["gain 0.1", "gain 1.0"]
    assert [[line.get_ydata()[0] for line in x.get_lines()] for x in axes] == (
        2 * [[0.5, 0.4], [0.5, 0.3]]
    )
    (line, _) = axes[0].get_lines()
    assert (line.get_label(), line.get_xdata()[0]) == ("none", 2)
    assert axes[3].get_xlabel() == "updates"
    # Alone it needs a column all the same.
    alone = {("none", None): groups[("none", None)]}
    plotting.comparison(alone, ["gain"], PANELS[:1], tmp_path / "g.png")
    assert len(drawn[1].axes[0].get_lines()) == 1


def test_pens_are_lifted_between_strokes(tmp_path, drawn):
    way = np.array([[1, 0, 0], [1, 1, 1], [2, 0, 0], [0, -1, 0]])
    plotting.handwriting([way], ["text"], tmp_path / "samples.png")
    (axis,) = drawn[0].axes
    one, two = axis.get_lines()
    assert one.get_xydata().tolist() == [[1, 0], [2, 1]]
    assert two.get_xydata().tolist() == [[4, 1], [4, 0]]


def test_canvases_stand_in_rows(tmp_path, drawn):
    pictures = np.random.default_rng(0).random((2, 3, 4, 5))
    plotting.canvases(pictures, tmp_path / "samples.png")
    axes = drawn[0].axes
    assert len(axes) == 6
    for axis, picture in zip(axes, pictures.reshape(6, 4, 5), strict=True):
        (image,) = axis.get_images()
        np.testing.assert_array_equal(image.get_array(), picture)
        assert image.get_clim() == (0, 1)
    assert [axis.get_xlabel() for axis in axes] == ["", "", "", "1", "2", "3"]


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
    def result(*losses):
        rows = [
            {"updates": 10 * n, "loss": own} for n, own in enumerate(losses, 1)
        ]
        return report.Result({}, rows)

    rival, panel = [result(3, 1, 2)], report.Panel("loss", "loss")
    assert report._race([result(2, 2, 1)], rival, panel) == "30"
    assert report._race([result(2, 2, 2)], rival, panel) == (
        "not reached (1 of 1)"
    )
    assert report._race(rival, rival, panel) == "20"
