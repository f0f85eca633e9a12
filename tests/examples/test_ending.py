"""How scripts end: in one sentence, to be gone on with."""

import importlib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import threading

import keras
import numpy as np
import order_embeddings
import permutation_invariant_mnist as script
import pytest
import tune
from common import callbacks, ending, studies, training
from keras.src.saving import saving_lib
from same_results import assert_same_results
from scripts import STUDIES, environment
from terminals import start_on_terminal

SMOKE = ["--smoke", "--units", "4", "--epochs", "4", "--norm", "batch"]


@pytest.fixture
def quick(monkeypatch):
    # What XLA would need for the model is more than this trains.
    monkeypatch.setattr(training, "speed", lambda updates: {})
    monkeypatch.setattr(sys, "argv", ["examples/some_script.py"])


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "unbroken"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "speed", lambda updates: {})
        assert script.main([*SMOKE, "--output-dir", str(folder)]) == 0
    return folder


def _assert_it_goes_on(folder, unbroken):
    assert not (folder / "metrics.json").exists()
    flags = [*SMOKE, "--output-dir", str(folder), "--resume"]
    assert script.main(flags) == 0
    assert_same_results(folder, unbroken, "args.json", "metrics.json")
    one, two = (
        keras.models.load_model(path / "model.keras", compile=False)
        for path in (folder, unbroken)
    )
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("epoch", [0, 2])
def test_ctrl_c(tmp_path, capsys, monkeypatch, quick, unbroken, epoch):
    folder = tmp_path / "run"
    on_batch_end = callbacks.StopOnNonFinite.on_batch_end

    def interrupted(self, batch, logs=None):
        on_batch_end(self, batch, logs)
        if (self._epoch, batch) == (epoch, 4):
            signal.raise_signal(signal.SIGINT)

    # A shell's background job, as this may be one, ignores the signal.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(callbacks.StopOnNonFinite, "on_batch_end", interrupted)
        flags = [*SMOKE, "--output-dir", str(folder)]
        with pytest.raises(SystemExit) as end:
            ending.execute(lambda: script.main(flags))
    signal.signal(signal.SIGINT, handler)
    assert end.value.code == 130
    captured = capsys.readouterr()
    assert captured.err == (
        "some_script.py: interrupted; --resume goes on with the run in "
        f"{folder}\n"
    )
    assert captured.out.count("\n") == epoch
    _assert_it_goes_on(folder, unbroken)
    capsys.readouterr()


def test_ctrl_c_while_keras_saves(tmp_path, monkeypatch, quick, unbroken):
    """Which Keras takes for a disk that cannot be written."""
    folder = tmp_path / "run"
    left = [signal.raise_signal]

    def interrupted(model):
        if left:
            left.pop()(signal.SIGINT)
        return True

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(saving_lib, "is_memory_sufficient", interrupted)
        with pytest.raises(SystemExit) as end:
            flags = [*SMOKE, "--output-dir", str(folder)]
            ending.execute(lambda: script.main(flags))
    signal.signal(signal.SIGINT, handler)
    assert end.value.code == 130 and not left
    _assert_it_goes_on(folder, unbroken)


def _closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


def test_a_closed_pipe(tmp_path, capsys, monkeypatch, quick, unbroken):
    folder = tmp_path / "run"
    flags = [*SMOKE, "--output-dir", str(folder)]
    with _closed_pipe() as pipe, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", pipe)
        with pytest.raises(SystemExit) as end:
            ending.execute(lambda: script.main(flags))
    assert end.value.code == 141
    assert capsys.readouterr().err == (
        "some_script.py: stopped, since nobody reads the output any more; "
        f"--resume goes on with the run in {folder}\n"
    )
    # The epoch whose line nobody read is not lost.
    assert (folder / training.BACKUP).exists()
    _assert_it_goes_on(folder, unbroken)


def test_a_study_has_nothing_to_resume(tmp_path, capsys, monkeypatch, quick):
    def interrupted(args, folder):
        raise KeyboardInterrupt

    study = studies.Study("a_study", "", {}, interrupted)
    flags = ["--output-dir", str(tmp_path / "run")]
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as end:
        ending.execute(lambda: studies.run(study, flags))
    signal.signal(signal.SIGINT, handler)
    assert end.value.code == 130
    assert capsys.readouterr().err == "some_script.py: interrupted\n"


def test_a_line_per_epoch_where_there_is_no_terminal(tmp_path, capsys, quick):
    flags = [*SMOKE, "--output-dir", str(tmp_path / "run")]
    assert script.main(flags) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    for number, line in enumerate(lines[:4], 1):
        assert re.fullmatch(
            rf"epoch {number}/4  \d+\.\d s  loss \d\.\d+  "
            r"val_loss \d\.\d+  val_accuracy 0\.\d+",
            line,
        )
    assert re.fullmatch(r"\| metric +\| run +\|", lines[4])
    assert lines[6].startswith("| train_nll ")
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", captured.out + captured.err)


def test_a_line_per_evaluation_with_the_logs_to_show(tmp_path, capsys):
    flags = ["--smoke", "--epochs", "1", "--fold", "20", "--units", "4"]
    assert order_embeddings.main([*flags, "--output-dir", str(tmp_path)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    number = r"-?[\d.]+(?:e\+\d+)?"
    shown = "  ".join(
        f"{name} {number}" for name in ("loss", "val_loss", "val_recall_sum")
    )
    assert re.fullmatch(rf"evaluation 1/1  \d+\.\d s  {shown}", first), first


def test_a_bar_on_a_terminal(tmp_path, capsys, monkeypatch, quick):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    flags = [*SMOKE, "--epochs", "2", "--output-dir", str(tmp_path / "run")]
    assert script.main(flags) == 0
    out = capsys.readouterr().out
    assert "Epoch 2/2" in out and "11/11" in out and "epoch 2/2 " not in out


@pytest.mark.full
@pytest.mark.parametrize("module", [script, tune])
def test_ctrl_c_on_a_terminal(tmp_path, module):
    folder, other = tmp_path / "run", tmp_path / "unbroken"
    flags = ["--smoke", "--epochs", "30", "--output-dir"]
    if module is tune:
        flags = ["permutation_invariant_mnist", "--max-trials", "1", *flags]
    process, read = start_on_terminal(module, *flags, folder)
    read(until="Epoch 3/30")
    read(until="loss")
    process.send_signal(signal.SIGINT)
    read()
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == (
        f"{module.__name__}.py: interrupted; --resume goes on with the run in "
        f"{folder}"
    )
    assert "Traceback" not in err
    assert module.main([*flags, str(folder), "--resume"]) == 0
    assert module.main([*flags, str(other)]) == 0
    one, two = (
        json.loads((f / "metrics.json").read_text()) for f in (folder, other)
    )
    assert one == two


# One of each kind: a training, a search, a study.
@pytest.mark.full
@pytest.mark.parametrize("name", ["everyday", STUDIES[0], "tune"])
def test_a_reader_of_one_line(tmp_path, capsys, monkeypatch, quick, name):
    module, folder = importlib.import_module(name), tmp_path / "run"
    flags = ["--smoke", "--output-dir", str(folder)]
    if module is tune:
        flags = [script.__name__, "--max-trials", "2", *flags]
    reader, writer = os.pipe()

    def read_one_line():
        with os.fdopen(reader) as file:
            assert file.readline()

    handler = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=read_one_line)
    thread.start()
    with os.fdopen(writer, "w") as pipe, monkeypatch.context() as patch:
        patch.setattr(sys, "argv", [module.__file__, *flags])
        patch.setattr(sys, "stdout", pipe)
        with pytest.raises(SystemExit) as end:
            runpy.run_path(module.__file__, run_name="__main__")
    thread.join()
    signal.signal(signal.SIGINT, handler)
    err = capsys.readouterr().err
    assert end.value.code == 141, err
    assert f"{name}.py: stopped, since nobody reads" in err.splitlines()[-1]
    if name not in STUDIES:
        assert module.main([*flags, "--resume"]) == 0


@pytest.mark.full
def test_a_process_that_nobody_reads(tmp_path):
    flags = ["--smoke", "--output-dir", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, script.__file__, *flags],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait() == 141, err
    assert "Traceback" not in err and "Exception ignored" not in err


def test_a_new_process_where_this_one_is_full(monkeypatch, capsys):
    started = []
    monkeypatch.setattr(os, "execv", lambda *command: started.append(command))
    monkeypatch.setattr(sys, "argv", ["examples/some_script.py", "--compare"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-u", *sys.argv])
    ending.renew("some_script")
    monkeypatch.setattr(ending, "MANY_MEMORY_MAPS", -1)
    ending.renew("another_script")  # Whose main() this program calls.
    assert not started and not capsys.readouterr().out
    ending.renew("some_script")
    flags = ["-u", "examples/some_script.py", "--compare", "--resume"]
    assert started.pop() == (sys.executable, ["python", *flags])
    assert "in a new process" in capsys.readouterr().out
    monkeypatch.setattr(sys, "orig_argv", ["python", *flags])
    ending.renew("some_script")
    assert started.pop() == (sys.executable, ["python", *flags])
