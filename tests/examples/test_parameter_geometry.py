"""The script on section 5: its numbers and its files."""

import os

import numpy as np
import parameter_geometry as script
import pytest
from common import plotting, runs
from matplotlib import pyplot as plt
from scripts import refusal, rows


@pytest.fixture
def folder(whole):
    return whole("parameter_geometry", "--smoke")


def test_table_1(folder):
    assert "layer   invariant" in (folder / "table_1.txt").read_text()


def test_the_metric_is_the_divergence_but_for_eq_13(folder):
    errors = {
        (row["normalisation"], row["Fisher"]): float(row["relative error"])
        for row in rows(folder / "divergence.csv")
    }
    assert len(errors) == 5
    assert errors.pop(("layer", "paper")) > 0.01
    assert max(errors.values()) < 0.005


def test_the_curve_of_eq_13_is_named(monkeypatch):
    figures = []
    monkeypatch.setattr(
        plotting, "save", lambda figure, *_, **__: figures.append(figure)
    )
    rows_of = {
        ("layer", method): np.ones((2, 3)) for method in ("paper", "exact")
    }
    curves = {"layer": np.ones((2, 2))}
    fishers = np.eye(28), np.ones((28, 28))
    script.draw((rows_of, curves, curves), fishers, None)
    styles = {
        line.get_label(): line.get_linestyle()
        for line in figures[0].axes[0].lines
    }
    assert styles["layer, eq. 13"] == ":" != styles["layer"]
    plt.close(figures[0])


def test_steps_shrink_with_the_weights(folder):
    slopes = {
        row["normalisation"]: [
            float(row["slope, all units"]),
            float(row["slope, one unit"]),
        ]
        for row in rows(folder / "steps.csv")
    }
    np.testing.assert_allclose(slopes["none"], 0, atol=1e-3)
    # Up to the curvature over a step.
    np.testing.assert_allclose(slopes["batch"], -2, atol=0.05)
    np.testing.assert_allclose(slopes["weight"], -2, atol=0.05)
    together, alone = slopes["layer"]
    assert together == pytest.approx(-2, abs=0.05) and alone > -1.5


def test_a_file_that_cannot_be_written_is_told(folder, capsys, monkeypatch):
    def full(descriptor):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(runs, "open_folder", lambda *args, **kwargs: None)
    flags = ("--smoke", "--output-dir", folder)
    # The numbers come before their files.
    line = refusal(capsys, script.main, *flags, printed="")
    assert "table_1.txt cannot be written (No space left on device)" in line
