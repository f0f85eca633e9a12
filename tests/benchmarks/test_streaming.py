"""One step at a time: the script runs and carries the states."""

import numpy as np
from scripts import rows

from benchmarks import streaming


def test_it_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(streaming, "CALLS", 2)
    streaming.main(["--smoke", "--output", str(tmp_path / "s")])
    table = rows(tmp_path / "s.csv")
    providers = [row["provider"].partition(",")[0] for row in table]
    assert {"keras_ln", "keras LSTM"} <= set(providers)
    assert "inference      keras_ln" in capsys.readouterr().out


def test_states_are_carried(monkeypatch):
    """What a call returns is what the next one gets."""
    monkeypatch.setattr(streaming, "CALLS", 3)
    received = []

    def call(x, states):
        received.append(states)
        return x, states + 1

    (run,) = streaming._steps(call, np.zeros(1), 0).values()
    run()
    run()
    assert received == [0, 1, 2, 0, 1, 2]
