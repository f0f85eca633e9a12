"""A search over another script: its table, its resumption, its workers."""

import contextlib
import dataclasses
import importlib
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import keras
import pytest
import tune as script
import tune_task
from changed import changed
from common import cli, ending, training
from common.datasets import mnist
from common.errors import InputError
from scripts import STUDIES, TRAINING, environment, refusal, rows

pytestmark = pytest.mark.usefixtures("uncompiled")

EXPERIMENT = "permutation_invariant_mnist"
FLAGS = [EXPERIMENT, "--smoke", "--unit-choices", "4", "6", "--epochs", "2"]


def _change_tasks(monkeypatch, change):
    module = importlib.import_module(EXPERIMENT)
    make_task = module.EXPERIMENT.make_task
    other = changed(
        module.EXPERIMENT, make_task=lambda *args: change(make_task(*args))
    )
    monkeypatch.setattr(module, "EXPERIMENT", other)


@pytest.mark.full
def test_every_trial_enters_devices_and_precision(tmp_path, monkeypatch):
    """KerasTuner leaves them before it."""
    entered, seen = [], []

    @contextlib.contextmanager
    def entering(args):
        entered.append(args)
        yield
        entered.pop()

    def spy(task):
        seen.append(("built", len(entered)))

        def batches(update):
            seen.append(("trained", len(entered)))
            return task.batches(update)

        return dataclasses.replace(task, batches=batches)

    monkeypatch.setattr(training, "environment", entering)
    _change_tasks(monkeypatch, spy)
    flags = [*FLAGS, "--max-trials", "1", "--output-dir"]
    assert script.main([*flags, str(tmp_path / "search")]) == 0
    assert set(seen) == {("built", 1), ("trained", 1)}


def test_no_script_is_left_out():
    """`test_every_script.py` runs these on every backend."""
    scripts = {
        path.stem
        for path in Path(script.__file__).parent.glob("*.py")
        if '__name__ == "__main__"' in path.read_text()
    }
    others = {"tune", "results", "quick_start"}
    assert scripts == {*TRAINING, *STUDIES, *others}


@pytest.fixture
def words(monkeypatch):
    """The search's experiment, as if its inputs were words."""
    _change_tasks(
        monkeypatch,
        lambda task: dataclasses.replace(task, vocabulary=("one", "two")),
    )


@pytest.mark.parametrize(
    "tuner",
    [
        pytest.param(
            tuner, marks=[] if tuner == "bayesian" else [pytest.mark.full]
        )
        for tuner in script.TUNERS
    ],
)
def test_every_tuner(tmp_path, capsys, words, tuner):
    folder = tmp_path / "search"
    flags = [*FLAGS, "--tuner", tuner, "--max-trials", "2"]
    flags += ["--norm-kinds", "none", "batch", "--gains", "0.5", "1"]
    flags += ["--learning-rates", "1e-3", "1e-2"]
    assert script.main([*flags, "--output-dir", str(folder)]) == 0
    trials = rows(folder / "trials.csv")
    assert sorted(int(row["trial"]) for row in trials) == [0, 1]
    losses = [float(row["val_loss"]) for row in trials]
    assert losses == sorted(losses) and losses[0] < 3
    for row in trials:
        assert row["status"] == "completed"
        assert (
            row["gain"] in {"none": [""], "batch": ["0.5", "1.0"]}[row["norm"]]
        )
        assert row["units"] in ("4", "6")
        assert 1e-3 <= float(row["learning_rate"]) <= 1e-2
    out = capsys.readouterr().out
    assert "| trial | status    | norm " in out
    assert (folder / "trials.png").stat().st_size > 5000
    assert (folder / "vocabulary.txt").read_text() == "one\ntwo\n"
    # The model is the best trial's, with the weights of its best epoch.
    model = keras.models.load_model(folder / "model.keras", compile=False)
    assert model.layers[1].units == int(trials[0]["units"])
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    x, y = mnist.small_digits()[2:]
    loss = model.evaluate(x.reshape(-1, 64), y, verbose=0)
    assert loss == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("name", script.EXPERIMENTS)
def test_a_trial_evaluates_after_every_pass(name):
    experiment = cli.find(name)
    own, _ = script._parser([name]).parse_known_args([name])
    for preset in experiment.presets:
        given = cli.parse(experiment, ["--preset", preset], "tune.py")
        assert script._complete(experiment, own, given).evaluate_every is None


@pytest.mark.full
@pytest.mark.parametrize("name", script.EXPERIMENTS)
def test_every_experiment(tmp_path, name):
    flags = [name, "--smoke", "--epochs", "1", "--max-trials", "2"]
    flags += [
        "--norm-kinds",
        cli.find(name).default_kind,
        "--gains",
        "0.5",
        "--unit-choices",
        "8",
    ]
    assert script.main([*flags, "--output-dir", str(tmp_path / "search")]) == 0
    trials = rows(tmp_path / "search" / "trials.csv")
    assert [row["status"] for row in trials] == ["completed", "completed"]
    rates = {row["learning_rate"] for row in trials}
    assert len(rates) == len({row["val_loss"] for row in trials}) == 2


@pytest.mark.full
def test_a_name_of_a_trial_leads_nowhere(tmp_path, capsys, whole):
    """It is that of a folder, which a file may lead elsewhere."""
    flags = f"{EXPERIMENT} --smoke --unit-choices 4 6 --max-trials 2"
    folder = shutil.copytree(whole("tune", flags), tmp_path / "search")
    (folder / "metrics.json").unlink()
    path = folder / "search" / "trial_0" / "trial.json"
    state = json.loads(path.read_text()) | {"trial_id": "0/../../x"}
    path.write_text(json.dumps(state))
    flags = [*flags.split(), "--output-dir", folder, "--resume"]
    loads = {"printed": "Reloading Tuner"}
    message = refusal(capsys, script.main, *flags, **loads)
    assert "search: expected a name of letters" in message


@pytest.mark.full
def test_a_chief_and_two_workers_share_a_search(tmp_path):
    folder = tmp_path / "search"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["convolutional_networks", "--smoke", "--max-trials", "4"]
    flags += ["--unit-choices", "1", "2", "--epochs", "1"]
    flags += ["--output-dir", str(folder)]
    processes = [
        subprocess.Popen(
            [sys.executable, script.__file__, *flags],
            env=environment(
                KERASTUNER_ORACLE_IP="127.0.0.1",
                KERASTUNER_ORACLE_PORT=str(port),
                KERASTUNER_TUNER_ID=name,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("chief", "worker0", "worker1")
    ]
    try:
        outputs = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    trials = rows(folder / "trials.csv")
    assert len(trials) == 4
    assert {row["status"] for row in trials} == {"completed"}
    assert "The table, the figure and the best model" in outputs[0]
    # The chief trains nothing, the workers share the trials.
    trained = [output.count("epoch 1/1 ") for output in outputs]
    assert trained[0] == 0 and sum(trained) == 4


def test_a_worker_that_comes_too_late_has_nothing_to_do(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("KERASTUNER_ORACLE_IP", "127.0.0.1")
    monkeypatch.setenv("KERASTUNER_ORACLE_PORT", "9")
    monkeypatch.setenv("KERASTUNER_TUNER_ID", "worker2")

    def finish(seconds):  # While it waits for a chief that is gone.
        (tmp_path / "metrics.json").touch()

    monkeypatch.setattr(tune_task.time, "sleep", finish)
    assert script.main([*FLAGS, "--output-dir", str(tmp_path)]) == 0
    assert "is finished" in capsys.readouterr().out
    assert not (tmp_path / "trials.csv").exists()


def test_a_ctrl_c_that_was_swallowed_ends_the_search(tmp_path, monkeypatch):
    monkeypatch.setattr(ending, "_interrupted", True)
    flags = ["permutation_invariant_mnist", "--smoke", "--max-trials", "1"]
    with pytest.raises(KeyboardInterrupt):
        script.main([*flags, "--output-dir", str(tmp_path / "run")])


@pytest.mark.full
@pytest.mark.parametrize("tuner", script.TUNERS)
def test_trials_that_diverge_are_told(tmp_path, capsys, tuner):
    """KerasTuner would end the search at the third."""
    folder = tmp_path / "search"
    flags = [*FLAGS, "--epochs", "3", "--tuner", tuner, "--max-trials", "4"]
    flags += ["--norm-kinds", "none", "--output-dir", str(folder)]
    assert script.main([*flags, "--learning-rates", "1e29", "1e30"]) == 1
    shown = capsys.readouterr()
    assert "no trial had a finite loss" in shown.err
    assert "Traceback" not in shown.out + shown.err
    trials = rows(folder / "trials.csv")
    assert [row["status"] for row in trials] == 4 * ["failed"]
    assert not (folder / "model.keras").exists()


@pytest.mark.full
def test_epochs_of_trials_that_go_on_with_others(tmp_path, capsys):
    folder = tmp_path / "search"
    flags = [*FLAGS, "--epochs", "4", "--tuner", "hyperband"]
    flags += ["--max-trials", "90", "--norm-kinds", "none"]
    assert script.main([*flags, "--output-dir", str(folder)]) == 0
    tried = rows(folder / "trials.csv")
    told = f"Hyperband tried {len(tried)} models of at most 90"
    assert told in capsys.readouterr().out
    went_on = 0
    for row in tried:
        (kept,) = folder.glob(f"search/trial_*{row['trial']}/trial.json")
        values = json.loads(kept.read_text())["hyperparameters"]["values"]
        first = values["tuner/initial_epoch"]
        assert first < int(row["best_epoch"]) <= values["tuner/epochs"]
        went_on += first > 0
    assert went_on


@pytest.mark.parametrize("part", ["search", "report"])
def test_what_cannot_be_written_is_told(capsys, tmp_path, monkeypatch, part):
    def fails(*args):
        raise InputError("the disk is full")

    monkeypatch.setattr(tune_task, "search", lambda *args: None)
    monkeypatch.setattr(tune_task, part, fails)
    out = ("--output-dir", tmp_path / "search")
    line = refusal(capsys, script.main, *FLAGS, *out)
    assert line == "tune.py: error: the disk is full"
