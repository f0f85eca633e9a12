"""Times and memory are what the harness says they are."""

import importlib
import re
import time

import numpy as np
import pytest
from scripts import rows

from benchmarks import harness, report


def test_steps_run_in_turn_each_after_its_product():
    """The first call and the products stand apart from the rounds."""
    calls, pauses = [], iter([0.05])

    class Matrix:
        def __matmul__(self, other):
            calls.append("product")
            time.sleep(0.05)
            return np.ones((1, 1))

    def step():
        calls.append("a")
        time.sleep(next(pauses, 0))

    steps = harness.after_products(Matrix(), {"a": step})
    steps["b"] = lambda: (calls.append("b"), time.sleep(0.01))
    first, times = harness.in_turn(steps, rounds=4)
    assert calls[-12:] == ["product", "a", "b"] * 4
    assert len(times["b"]) == 4 and first["a"] >= 50
    assert min(first["b"], *times["b"]) >= 10
    assert np.median(times["a"]) < 5


def test_ratio_to_the_first_provider_of_each_mode(capsys):
    def row(provider, mode, time):
        figures = dict.fromkeys(harness.COLUMNS, time)
        return figures | {"provider": provider, "mode": mode, "sizes": "2x2"}

    training, inference = harness.MODES
    table = [
        *(row("ours", training, 2.0), row("theirs", training, 8.0)),
        *(row("ours", inference, 1.0), row("theirs", inference, 0.5)),
    ]
    report.print_table(table)
    lines = capsys.readouterr().out.splitlines()
    ratios = [line.split("ours/this")[1].split()[0] for line in lines]
    assert ratios == ["1.00", "0.25", "1.00", "2.00"]


@pytest.mark.parametrize(
    "command, said",
    [
        ("streaming --rounds 0", "--rounds: expected a positive integer, rec"),
        ("streaming --threads x", "--threads: expected a positive integer"),
        ("sequence_layers --dtype float17", "--dtype: invalid choice"),
        ("memory --sizes A Z", "--sizes: expected A, B, C, .* received 'Z'"),
        ("memory --sizes A,", "--sizes: expected A, B, C, .* received 'A,'"),
        ("memory --sizes 1,2,3", "--sizes: expected .* received '1,2,3'"),
        ("memory --sizes 1,2,3,0", "--sizes: expected .* received '1,2,3,0'"),
        ("tpu_kernels --sizes Z", "--sizes: .* received 'Z'"),
        ("memory --rounds 9", "unrecognized arguments: --rounds 9"),
        ("precision --dtype float16", "unrecognized arguments: --dtype"),
        ("precision --output r", "--output: r does not end in .csv"),
        ("precision --output a_file/x.csv", "a_file is not writable"),
        ("precision --output a_file/deeper/x.csv", "a_file is not writable"),
    ],
)
def test_options_that_are_refused(command, said, tmp_path, capsys, monkeypatch):
    """By name, before anything is measured."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    script, *arguments = command.split()
    main = importlib.import_module(f"benchmarks.{script}").main
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert re.search(said, capsys.readouterr().err.splitlines()[-1])


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "r.csv"
    report.write_csv([{"a": 1}, {"b": 2}], path)
    with pytest.raises(OSError, match="full"), report.whole(path) as part:
        part.write_text("a")
        raise OSError("full")
    assert path.read_text() == "a,b\n1,\n,2\n"
    assert [*tmp_path.iterdir()] == [path]


def test_a_second_run_keeps_other_sizes_and_providers(tmp_path):
    def run(name, sizes, *providers, time):
        common = {"op": "LNLSTM", "sizes": sizes, "p50_ms": time}
        table = [
            common | {"provider": provider, "mode": mode}
            for provider in providers
            for mode in harness.MODES
        ]
        report.add(table, name, tmp_path / "t.csv")

    run("layers", "A", "ours", "other", time=1)
    run("layers", "B", "ours", time=2)
    run("layers", "A", "ours", time=3)
    run("lay", "A", "ours", time=4)
    assert [
        (r["run"], r["sizes"], r["provider"], r["p50_ms"])
        for r in rows(tmp_path / "t.csv")
        if r["mode"] == harness.INFERENCE
    ] == [
        ("lay", "A", "ours", "4"),
        ("layers", "A", "ours", "3"),
        ("layers", "A", "other", "1"),
        ("layers", "B", "ours", "2"),
    ]
