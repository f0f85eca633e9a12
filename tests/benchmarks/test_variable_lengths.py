"""What sequences of many lengths cost: the script says what it measured."""

import json

import pytest
from scripts import rows

from benchmarks import variable_lengths


def test_the_table(tmp_path, capsys, monkeypatch):
    """Seconds of the median round, and shares of the loop's."""
    rounds = iter([1.0, 3.0, 2.0])
    names = ["keras_ln", variable_lengths.LOOP, "keras LSTM"]
    monkeypatch.setattr(variable_lengths, "providers", lambda: names)
    factors = dict(zip(names, (1, 2, 4), strict=True))
    slow = {}

    def run(provider, arguments):
        if provider == names[0]:
            slow["by"] = next(rounds)
        seconds = slow["by"] * factors[provider]
        return [(10 * seconds, 7), (seconds, 0)]

    monkeypatch.setattr(variable_lengths, "run", run)
    variable_lengths.main(["--output", str(tmp_path / "v")])
    table = rows(tmp_path / "v.csv")
    assert [int(row["epoch"]) for row in table] == [1] * 3 + [2] * 3
    assert [float(row["seconds"]) for row in table] == [20, 40, 80, 2, 4, 8]
    assert [float(row["of_the_loop"]) for row in table] == [0.5, 1, 2] * 2
    assert [int(row["compilations"]) for row in table] == [7] * 3 + [0] * 3
    assert (tmp_path / "v.png").exists()
    assert "0.50 of the loop's, 7 compilations" in capsys.readouterr().out


def test_what_the_frameworks_log_is_counted(monkeypatch):
    log = (
        "I0 device_compilation_profiler.cc:100] Compiled cluster_0 1 times\n"
        f"{variable_lengths.EPOCH_ENDS}\n"
        "Finished XLA compilation of jit(f) in 0.1 sec\n"
        "Finished XLA compilation of jit(g) in 0.1 sec\n"
        f"{variable_lengths.EPOCH_ENDS}\nCompiled late 1 times\n"
    )

    class Done:
        returncode, stderr, stdout = 0, log, "some text\n[1.5, 0.5]\n"

    monkeypatch.setattr(
        variable_lengths.subprocess, "run", lambda *args, **kwargs: Done
    )
    assert variable_lengths.run("keras_ln", []) == [(1.5, 1), (0.5, 2)]


@pytest.mark.parametrize(
    "provider, kernels", [("keras_ln", "0"), ("keras_ln (kernels)", None)]
)
def test_kernels_where_their_provider_says_so(provider, kernels, monkeypatch):
    seen = {}

    class Done:
        returncode, stderr, stdout = 0, variable_lengths.EPOCH_ENDS, "[1, 1]"

    def run(command, env, **others):
        seen.update(env)
        return Done

    monkeypatch.delenv("KERAS_LN_KERNELS", raising=False)
    monkeypatch.setattr(variable_lengths.subprocess, "run", run)
    variable_lengths.run(provider, [])
    assert seen.get("KERAS_LN_KERNELS") == kernels


@pytest.mark.full
def test_it_runs(tmp_path, capsys, monkeypatch):
    in_a_process = variable_lengths.run

    def run(provider, arguments):
        # One of them so, since imports take longer than the rest.
        if provider == "keras_ln":
            return in_a_process(provider, arguments)
        variable_lengths.main([*arguments, "--train", provider])
        return [(s, 0) for s in json.loads(capsys.readouterr().out)]

    monkeypatch.setattr(variable_lengths, "run", run)
    variable_lengths.main(["--smoke", "--output", str(tmp_path / "v")])
    table = rows(tmp_path / "v.csv")
    assert len(table) == 2 * len(variable_lengths.providers())
    for row in table:
        # Counted in the process alone.
        assert row["provider"] != "keras_ln" or row["compilations"] == "0"
