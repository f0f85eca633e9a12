"""The benchmark runs, and writes what it promises."""

from scripts import rows

from benchmarks import harness, layer_normalization


def test_smoke(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        layer_normalization,
        "memory_of",
        lambda options, provider: (
            {"inference": 2.5} if provider.startswith("keras_ln") else None
        ),
    )
    layer_normalization.main(["--smoke", "--output", str(tmp_path / "ln")])
    table = rows(tmp_path / "ln.csv")
    assert list(table[0]) == harness.COLUMNS
    providers = {row["provider"].split(",")[0] for row in table}
    assert {"keras_ln", "keras"} <= providers
    assert {row["mode"] for row in table} == set(harness.MODES)
    for row in table:
        low, middle, high = (float(row[f"p{part}_ms"]) for part in (20, 50, 80))
        assert 0 < low <= middle <= high
        assert row["sizes"] == "64x32 float32"
        is_ours = row["provider"].startswith("keras_ln")
        known = is_ours and row["mode"] == "inference"
        assert row["peak_memory_mb"] == ("2.5" if known else "")
    printed = capsys.readouterr().out
    assert all(row["provider"] in printed for row in table)
    assert (tmp_path / "ln.png").exists()
