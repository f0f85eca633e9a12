"""What all scripts have in common, in runs of each.

One smoke on every backend; and devices and precision, of the scripts that have
no such tests of their own.
"""

import functools
import importlib
import json
import math
import tempfile
from pathlib import Path

import keras
import permutation_invariant_mnist
import pytest
import tune
from two_devices import run_on_two_devices

# Of each script its first result, and how far the runs may be apart. On
# TensorFlow every device draws noise of its own, of which two scripts have
# some in training or evaluation.
BACKEND = keras.backend.backend()
NOISE = 0.1 if BACKEND == "tensorflow" else 2e-3
SCRIPTS = {
    "convolutional_networks": ("train_nll", 2e-3),
    "draw_mnist": ("train_bound_nats", NOISE),
    "handwriting_generation": ("train_nll", 2e-3),
    # 64 steps make more of rounding than the layers of the others.
    "sequential_mnist": ("train_nll", max(NOISE, 1e-2)),
}
# They train nothing.
STUDIES = ("parameter_geometry", "recurrent_dynamics")
# XLA takes up to half a minute for a model on JAX.
QUICK = ("permutation_invariant_mnist", "convolutional_networks")


def smokes(names):
    """The scripts, on JAX most of them for the full run."""
    return [
        pytest.param(
            name,
            marks=[]
            if BACKEND != "jax" or name in QUICK
            else [pytest.mark.full],
        )
        for name in names
    ]


def _results(folder):
    return json.loads((folder / "metrics.json").read_text())


@functools.cache
def _in_float32(name, norm):
    """The results of a smoke, run once for both of the types below."""
    with tempfile.TemporaryDirectory() as folder:
        script = importlib.import_module(name)
        flags = ["--smoke", "--norm", norm, "--output-dir", folder]
        assert script.main(flags) == 0
        return _results(Path(folder))


@pytest.mark.parametrize("name", smokes(STUDIES))
def test_a_study_runs_on_this_backend(tmp_path, name):
    script, folder = importlib.import_module(name), tmp_path / "run"
    assert script.main(["--smoke", "--output-dir", str(folder)]) == 0
    assert list(folder.glob("*.png"))


@pytest.mark.parametrize("name", smokes(tune.EXPERIMENTS))
def test_runs_on_this_backend(tmp_path, name):
    script, folder = importlib.import_module(name), tmp_path / "run"
    flags = ["--smoke", "--epochs", "1", "--norm", "layer", "--output-dir"]
    assert script.main([*flags, str(folder)]) == 0
    assert all(map(math.isfinite, _results(folder).values()))
    assert keras.models.load_model(folder / "model.keras").built


@pytest.mark.full
@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_two_devices_share_a_batch(tmp_path, name, norm):
    script, (result, tolerance) = importlib.import_module(name), SCRIPTS[name]
    flags = ["--smoke", "--norm", norm, "--batch-size", "16", "--output-dir"]
    one, two = tmp_path / "one", tmp_path / "two"
    end = run_on_two_devices(script, *flags, str(two))
    if BACKEND == "torch":
        assert end.returncode == 2
        assert "works on the tensorflow and jax backends" in end.stderr
        return
    assert end.returncode == 0, end.stderr
    devices = json.loads((two / "environment.json").read_text())["devices"]
    assert len(devices) == 2
    assert script.main([*flags, str(one)]) == 0
    alone, shared = _results(one), _results(two)
    assert shared["updates"] == alone["updates"]
    assert shared[result] == pytest.approx(alone[result], rel=tolerance)


@pytest.mark.full
def test_two_devices_train_a_comparison(tmp_path):
    script, folder = permutation_invariant_mnist, tmp_path / "runs"
    flags = ["--smoke", "--compare", "--batch-size", "32", "--output-dir"]
    end = run_on_two_devices(script, *flags, str(folder))
    if BACKEND == "torch":
        assert end.returncode == 2
        return
    assert end.returncode == 0, end.stderr
    runs = [*folder.glob("*/environment.json")]
    assert len(runs) == len(script.EXPERIMENT.kinds)
    for run in runs:
        assert len(json.loads(run.read_text())["devices"]) == 2


@pytest.mark.full
def test_two_devices_search(tmp_path):
    flags = ["permutation_invariant_mnist", "--smoke", "--max-trials", "2"]
    flags += ["--norm-kinds", "none", "layer", "--batch-size", "32"]
    folder = tmp_path / "search"
    end = run_on_two_devices(tune, *flags, "--output-dir", str(folder))
    if BACKEND == "torch":
        assert end.returncode == 2
        return
    assert end.returncode == 0, end.stderr
    assert (folder / "trials.csv").read_text().count(",completed,") == 2


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_search_in_mixed_precision(tmp_path, dtype):
    folder = tmp_path / "search"
    flags = ["permutation_invariant_mnist", "--smoke", "--max-trials", "1"]
    flags += ["--mixed-precision", dtype, "--output-dir", str(folder)]
    assert tune.main(flags) == 0
    model = keras.models.load_model(folder / "model.keras", compile=False)
    assert model.layers[1].compute_dtype == dtype


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_mixed_precision(tmp_path, name, norm, dtype):
    script, (result, _) = importlib.import_module(name), SCRIPTS[name]
    flags = ["--smoke", "--norm", norm, "--mixed-precision", dtype]
    assert script.main([*flags, "--output-dir", str(tmp_path)]) == 0
    model = keras.models.load_model(tmp_path / "model.keras", compile=False)
    policies = {layer.dtype_policy.name for layer in model._flatten_layers()}
    assert f"mixed_{dtype}" in policies
    # Two or three digits, and float16 starts with steps that overflow.
    assert _results(tmp_path)[result] == pytest.approx(
        _in_float32(name, norm)[result], rel=0.05
    )
