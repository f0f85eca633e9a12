"""Times and memory are what the harness says they are."""

import time

import pytest

from benchmarks import harness, report


def test_steps_run_in_turn():
    calls = []
    steps = {
        "a": lambda: calls.append("a"),
        "b": lambda: (calls.append("b"), time.sleep(0.01)),
    }
    times = harness.timed(steps, rounds=4)
    assert "".join(calls[-8:]) == "abababab"
    first, p20, p50, p80 = times["b"]
    assert 10 <= p20 <= p50 <= p80
    assert first >= 10
    assert times["a"][2] < 5


def test_the_first_call_stands_apart():
    pauses = iter([0.05])
    steps = {"a": lambda: time.sleep(next(pauses, 0))}
    first, _, _, p80 = harness.timed(steps, rounds=9)["a"]
    assert first >= 50
    assert p80 < 20


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
    rows = [
        {"op": op, "sizes": "A", "mode": mode, "provider": op}
        for op in ("LNGRU", "LNLSTM")
        for mode in harness.MODES
    ]
    found = report.panels_of(rows)
    assert [*found] == ["LNGRU A", "LNLSTM A"]
    for name, modes in found.items():
        assert [*modes] == [*harness.MODES]
        assert all(f"{r['provider']} A" == name for (r,) in modes.values())
