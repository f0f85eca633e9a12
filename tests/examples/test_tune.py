"""A search over another script: its table, its resumption, its workers."""

import json
import shutil
import socket
import subprocess
import sys

import keras
import pytest
import tune as script
from common import files
from scripts import environment, refusal, rows

pytestmark = pytest.mark.usefixtures("uncompiled")
EXPERIMENT = "permutation_invariant_mnist"
FLAGS = [EXPERIMENT, "--smoke", "--unit-choices", "4", "6", "--epochs", "2"]


@pytest.mark.parametrize(
    "tuner",
    [
        pytest.param(
            tuner, marks=[] if tuner == "bayesian" else [pytest.mark.full]
        )
        for tuner in script.TUNERS
    ],
)
def test_every_tuner(tmp_path, capsys, tuner):
    folder = tmp_path / "search"
    words = [*FLAGS, "--tuner", tuner, "--max-trials", "2"]
    words += ["--norm-kinds", "none", "batch", "--gains", "0.5", "1"]
    words += ["--learning-rates", "1e-3", "1e-2"]
    words += ["--output-dir", str(folder)]
    assert script.main(words) == 0
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
    assert "| trial | status    | norm " in capsys.readouterr().out
    model = keras.models.load_model(folder / "model.keras")
    assert model.layers[1].units == int(trials[0]["units"])
    assert files.read_json(folder / "metrics.json")["val_loss"] == losses[0]
    assert script.main([*words, "--resume"]) == 0
    assert "is finished" in capsys.readouterr().out


@pytest.mark.full
def test_a_name_of_a_trial_leads_nowhere(tmp_path, capsys, whole):
    """It is that of a folder, which a file may lead elsewhere."""
    words = f"{EXPERIMENT} --smoke --unit-choices 4 6 --max-trials 2"
    folder = shutil.copytree(whole("tune", words), tmp_path / "search")
    (folder / "metrics.json").unlink()
    path = folder / "search" / "trial_0" / "trial.json"
    state = json.loads(path.read_text()) | {"trial_id": "0/../../x"}
    path.write_text(json.dumps(state))
    words = [*words.split(), "--output-dir", folder, "--resume"]
    message = refusal(capsys, script.main, *words, printed="")
    assert "search: expected a name of letters" in message


@pytest.mark.full
def test_a_chief_and_two_workers_share_a_search(tmp_path):
    folder = tmp_path / "search"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["convolutional_networks", "--smoke", "--max-trials", "4"]
    words += ["--unit-choices", "1", "2", "--epochs", "1"]
    words += ["--output-dir", str(folder)]
    processes = [
        subprocess.Popen(
            [sys.executable, script.__file__, *words],
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
    assert [row["status"] for row in trials] == 4 * ["completed"]
    # The chief trains nothing, the workers share the trials.
    trained = [output.count(" - val_loss: ") for output in outputs]
    assert trained[0] == 0 and sum(trained) == 4


@pytest.mark.full
def test_trials_that_diverge_are_told(tmp_path, capsys):
    """KerasTuner would end the search at the third."""
    folder = tmp_path / "search"
    words = [*FLAGS, "--max-trials", "4", "--norm-kinds", "none"]
    words += ["--output-dir", str(folder), "--learning-rates", "1e29", "1e30"]
    assert script.main(words) == 1
    shown = capsys.readouterr()
    assert "no trial had a finite loss" in shown.err
    assert "Traceback" not in shown.out + shown.err
    trials = rows(folder / "trials.csv")
    assert [row["status"] for row in trials] == 4 * ["failed"]
    assert not (folder / "model.keras").exists()
