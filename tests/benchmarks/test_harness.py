"""Times and memory are what the harness says they are."""

import argparse
import importlib
import pathlib
import re
import shutil
import time

import keras
import numpy as np
import pytest
from scripts import rows

from benchmarks import harness, report, settings


def test_steps_run_in_turn():
    calls = []
    steps = {
        "a": lambda: calls.append("a"),
        "b": lambda: (calls.append("b"), time.sleep(0.01)),
    }
    first, times = harness.in_turn(steps, rounds=4)
    assert "".join(calls[-8:]) == "abababab"
    assert len(times["b"]) == 4
    assert min(first["b"], *times["b"]) >= 10
    assert np.median(times["a"]) < 5


def test_rounds_come_after_a_product_that_is_not_timed():
    calls = []

    class Matrix:
        def __matmul__(self, other):
            calls.append("product")
            time.sleep(0.05)
            return np.ones((1, 1))

    steps = {harness.TRAINING: lambda: calls.append("step")}
    harness.after_products(Matrix(), steps)
    steps["alone"] = lambda: calls.append("alone")
    _, times = harness.in_turn(steps, rounds=3)
    assert calls[-9:] == ["product", "step", "alone"] * 3
    assert np.median(times[harness.TRAINING]) < 20


def test_the_first_call_stands_apart():
    pauses = iter([0.05])
    steps = {"a": lambda: time.sleep(next(pauses, 0))}
    first, times = harness.in_turn(steps, rounds=9)
    assert first["a"] >= 50
    assert np.percentile(times["a"], 80) < 20


def test_calls_back_to_back_are_waited_for_once():
    """As on a GPU; what cannot be launched apart is called once."""
    calls = []
    launched = harness.waiting(
        {"mode": lambda: calls.append("launch")},
        lambda result: (calls.append("wait"), time.sleep(0.03)),
    )
    steps = {**launched, "whole": lambda: calls.append("step")}
    _, times = harness.in_turn(steps, rounds=1, calls=3)
    usual = ["launch", "wait"]
    assert calls[:-5] == [*usual, "step", *usual * 2, "step", "step"]
    assert calls[-5:] == ["launch"] * 3 + ["wait", "step"]
    assert 10 <= times["mode"][0] < 20


def test_ratios_are_those_of_rounds(capsys, monkeypatch):
    """A round in which all is slow says nothing of the ratio."""
    pace = np.array([1.0, 9.0, 1.0, 4.0, 1.0])
    found = harness.paired_ratio(1.5 * pace, pace)
    np.testing.assert_allclose(found, [1.5, 1.5, 1.5])
    times = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6])
    ratio, low, high = harness.paired_ratio(times, np.ones(7))
    assert ratio == 1.3 and 1.0 < low < 1.2 and 1.4 < high < 1.6
    milliseconds = {"a": 2.0, "b": 3.0}
    monkeypatch.setattr(harness, "milliseconds", lambda step, calls=1: step())
    programs = {
        name: lambda ms=ms: {harness.TRAINING: lambda: ms}
        for name, ms in milliseconds.items()
    }
    options = argparse.Namespace(rounds=3, threads=1)
    harness.measure("op", "A", programs, options, beside=lambda name: "a")
    said = "training step  b: 1.500 times a, 95 % interval 1.500 to 1.500\n"
    assert capsys.readouterr().out == said


def test_ratio_to_the_first_provider_of_each_mode(capsys):
    def row(provider, mode, time):
        values = [
            "op",
            provider,
            mode,
            "2x2",
            time,
            time,
            time,
            1.0,
            "",
            "",
            "",
        ]
        return dict(zip(harness.COLUMNS, values, strict=True))

    training, inference = harness.MODES
    report.print_table(
        [
            row("ours", training, 2.0),
            row("theirs", training, 8.0),
            row("ours", inference, 1.0),
            row("theirs", inference, 0.5),
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    ratios = [line.split("ours/this")[1].split()[0] for line in lines]
    assert ratios == ["1.00", "0.25", "1.00", "2.00"]


def test_a_child_that_fails_says_why():
    with pytest.raises(RuntimeError, match="invalid choice: 'none'"):
        harness.peak_memory("sequence_layers", ["--layer", "none"])


def test_ops_of_one_size_have_panels_of_their_own():
    table = [
        {"op": op, "sizes": "A", "mode": mode, "provider": op}
        for op in ("LNGRU", "LNLSTM")
        for mode in harness.MODES
    ]
    found = report.panels_of(table)
    assert [*found] == ["LNGRU A", "LNLSTM A"]
    for name, modes in found.items():
        assert [*modes] == [*harness.MODES]
        assert all(f"{r['provider']} A" == name for (r,) in modes.values())


@pytest.mark.parametrize(
    "command, said",
    [
        ("openmp --threads 0", "--threads: expected a positive integer, rec"),
        ("packing --rounds 0", "--rounds: expected a positive integer, rec"),
        ("streaming --units x", "--units: expected a positive integer, rec"),
        ("sequence_layers --dtype float17", "--dtype: invalid choice"),
        ("memory --sizes A Z", "--sizes: expected A, B, C, .* received 'Z'"),
        ("openmp --sizes A,", "--sizes: expected A, B, C, .* received 'A,'"),
        ("accelerator_kernels --sizes Z", "--sizes: .* received 'Z'"),
        ("scaling --sizes A", "--sizes: has no effect with one number"),
        ("scaling --threads 1 2 --layer gru", "--layer: has no effect with s"),
        ("scaling --threads 1 2 --recurrent-dropout 0.3", "--recurrent-dropou"),
        ("long_training --plot --threads 1", "--threads: has no effect"),
        ("memory --rounds 9", "unrecognized arguments: --rounds 9"),
        *(
            (f"{script} --dtype float16", "unrecognized arguments: --dtype")
            for script in ("streaming", "packing", "openmp", "precision")
        ),
        ("tensorflow_programs run . --sizes A", "unrecognized arguments: --si"),
    ],
)
def test_options_that_are_refused(command, said, tmp_path, capsys):
    """By name, before anything is measured."""
    script, *arguments = command.split()
    main = importlib.import_module(f"benchmarks.{script}").main
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--output", str(tmp_path / "r")])
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


@pytest.mark.parametrize("path", sorted(report.RESULTS.glob("*layer*.csv")))
def test_tables_written_again_are_the_same(path, tmp_path):
    again = pathlib.Path(shutil.copy(path, tmp_path))
    report.add_to_csv(rows(path), again)
    assert again.read_bytes() == path.read_bytes()


def test_sizes_are_those_of_the_page():
    page = (harness.ROOT / "benchmarks" / "README.md").read_text("utf-8")
    lines = re.findall(
        r"^\| ([A-Z, ]+) \| (\d+) \| (\d+) \| (\d+) \| ([\d, ]+) \|", page, re.M
    )
    sizes = {
        letter: settings.Size(*map(int, (*others, units)))
        for letters, *others, last in lines
        for letter, units in zip(
            letters.split(", "), last.split(", "), strict=True
        )
    }
    assert sizes == settings.SIZES


if keras.backend.backend() == "torch":

    def test_the_gpu_is_the_one_of_torch(monkeypatch):
        """And JAX, beside it, takes none of its memory."""
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
        assert harness.device(2) == "a GPU"


def test_names_of_results_keep_their_dots():
    for name in ("run_2.25ghz", "run_2.25ghz.csv", "run_2.25ghz.png"):
        found = report.file_of(pathlib.Path("a.b", name), ".csv")
        assert found == pathlib.Path("a.b", "run_2.25ghz.csv")


@pytest.mark.parametrize(
    "kept",
    [
        b"a,b\n1,2\n",
        b"\xff\xfe\x00\x01",
        b"op,sizes,mode,provider,p50_ms\nA,3,graph,keras_ln\n",
    ],
    ids=["other columns", "no text", "cut off"],
)
def test_what_cannot_be_added_to_is_refused_at_once(
    kept, tmp_path, monkeypatch
):
    path = tmp_path / "kept.csv"
    path.write_bytes(kept)
    monkeypatch.setattr(harness, "measure", lambda *args: pytest.fail("timed"))
    module = importlib.import_module("benchmarks.layer_normalization")
    with pytest.raises(SystemExit, match="--output: .*kept.csv has other rows"):
        module.main(["--smoke", "--output", str(tmp_path / "kept")])
    assert path.read_bytes() == kept


@pytest.mark.parametrize("name", ["a_file/x", "a_file/deeper/x"])
def test_a_folder_that_cannot_be_made(name, tmp_path, capsys):
    (tmp_path / "a_file").touch()
    parser = harness.parser("name", "Measures.", rounds=1)
    with pytest.raises(SystemExit):
        parser.parse_args(["--output", str(tmp_path / name)])
    assert "a_file is no writable folder" in capsys.readouterr().err
