"""The benchmark runs, and writes what it promises."""

import csv

import pytest

from benchmarks import layer_normalization


@pytest.fixture(autouse=True)
def same_environment(monkeypatch):
    """The suite's threads stay as they are."""
    monkeypatch.setattr(layer_normalization, "set_threads", lambda number: None)


def test_smoke(tmp_path, capsys, monkeypatch):
    memory = {"keras_ln": 2.5}
    monkeypatch.setattr(
        layer_normalization,
        "peak_memory",
        lambda key, options: memory.get(key[0].split()[0]),
    )
    layer_normalization.main(["--smoke", "--output", str(tmp_path / "ln")])
    with open(tmp_path / "ln.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == layer_normalization.COLUMNS
    providers = {row["provider"].split()[0] for row in rows}
    assert {"keras_ln", "keras"} <= providers
    assert {row["mode"] for row in rows} == set(layer_normalization.MODES)
    for row in rows:
        low, middle, high = (float(row[f"p{part}_ms"]) for part in (20, 50, 80))
        assert 0 < low <= middle <= high
        assert row["sizes"] == "64x32 float32"
        is_ours = row["provider"].startswith("keras_ln")
        assert row["peak_memory_mb"] == ("2.5" if is_ours else "")
    printed = capsys.readouterr().out
    assert all(row["provider"] in printed for row in rows)
    assert (tmp_path / "ln.png").exists()


def test_peak_memory_sees_the_arrays():
    options = layer_normalization.parse(["--smoke"])
    options.rows, options.features = 4096, 1024
    keys = layer_normalization.programs(layer_normalization.parse(["--smoke"]))
    key = next(
        k for k in keys if k[0].startswith("keras ") and k[1] == "inference"
    )
    memory = layer_normalization.peak_memory(key, options)
    # y has 16 MB, and Keras a few intermediates of that size.
    assert memory is None or 15 < memory < 200
