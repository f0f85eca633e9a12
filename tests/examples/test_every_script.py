"""What all scripts have in common, in runs of each.

One smoke on every backend; and devices and precision, of the scripts that have
no such tests of their own.
"""

import importlib
import itertools
import json
import math
import types
from typing import NamedTuple

import keras
import permutation_invariant_mnist
import pytest
import tune
from common import cli
from two_devices import run_on_two_devices

pytestmark = pytest.mark.every_backend

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
# XLA takes up to half a minute for some of the others.
QUICK = (
    *("permutation_invariant_mnist", "convolutional_networks"),
    "sequential_mnist",
)


def smokes(names):
    """The scripts: quick on torch, most of them for the full run with XLA."""
    quick = names if BACKEND == "torch" else QUICK
    return [
        pytest.param(name, marks=[] if name in quick else [pytest.mark.full])
        for name in names
    ]


def refused_on_torch(capsys, script, *flags):
    """Whether this backend is torch, which has no shared batches here."""
    if BACKEND != "torch":
        return False
    with pytest.raises(SystemExit, match="2"):
        script.main([*flags, "--distribute", "data-parallel"])
    expected = "works on the tensorflow and jax backends"
    assert expected in capsys.readouterr().err
    return True


def _results(folder):
    return json.loads((folder / "metrics.json").read_text())


class Run(NamedTuple):
    """A script with flags, and what it found on one device in float32."""

    script: types.ModuleType
    flags: list[str]
    results: dict[str, float]
    compared: str
    tolerance: float


# Of the module, so that pytest runs all that use one after the other.
@pytest.fixture(
    scope="module",
    params=itertools.product(SCRIPTS, ("none", "layer")),
    ids="-".join,
)
def alone(request, tmp_path_factory):
    """A run to compare with those on other devices or in other types."""
    name, norm = request.param
    script = importlib.import_module(name)
    folder = tmp_path_factory.mktemp(name)
    flags = ["--smoke", "--norm", norm, "--batch-size", "16", "--output-dir"]
    assert script.main([*flags, str(folder)]) == 0
    return Run(script, flags, _results(folder), *SCRIPTS[name])


@pytest.mark.parametrize("name", smokes(STUDIES))
def test_a_study_runs_on_this_backend(tmp_path, name):
    script, folder = importlib.import_module(name), tmp_path / "run"
    assert script.main(["--smoke", "--output-dir", str(folder)]) == 0
    assert list(folder.glob("*.png"))


@pytest.mark.parametrize("name", smokes(tune.EXPERIMENTS))
def test_runs_on_this_backend(tmp_path, name):
    experiment, folder = cli.find(name), tmp_path / "run"
    flags = ["--smoke", "--epochs", "1", "--output-dir", str(folder)]
    assert cli.run(experiment, flags) == 0
    assert all(map(math.isfinite, _results(folder).values()))
    assert keras.models.load_model(folder / "model.keras").built


if BACKEND == "tensorflow":  # which alone traces

    def test_an_update_is_traced_once(tmp_path, monkeypatch):
        """All that has variables has them before: tracing takes seconds."""
        traced = []
        step = keras.Model.train_step

        def counted(model, data):
            traced.append(model)
            return step(model, data)

        monkeypatch.setattr(keras.Model, "train_step", counted)
        flags = ["--smoke", "--units", "4", "--output-dir", str(tmp_path)]
        assert permutation_invariant_mnist.main(flags) == 0
        assert len(traced) == 1


@pytest.mark.full
def test_two_devices_share_a_batch(tmp_path, alone, capsys):
    flags = [*alone.flags, str(tmp_path)]
    if refused_on_torch(capsys, alone.script, *flags):
        return
    end = run_on_two_devices(alone.script, *flags)
    assert end.returncode == 0, end.stderr
    devices = json.loads((tmp_path / "environment.json").read_text())["devices"]
    assert len(devices) == 2
    shared = _results(tmp_path)
    assert shared["updates"] == alone.results["updates"]
    assert shared[alone.compared] == pytest.approx(
        alone.results[alone.compared], rel=alone.tolerance
    )


@pytest.mark.full
def test_two_devices_train_a_comparison(tmp_path, capsys):
    script = permutation_invariant_mnist
    flags = ["--smoke", "--compare", "--batch-size", "32"]
    flags += ["--output-dir", str(tmp_path)]
    if refused_on_torch(capsys, script, *flags):
        return
    end = run_on_two_devices(script, *flags)
    assert end.returncode == 0, end.stderr
    runs = [*tmp_path.glob("*/environment.json")]
    assert len(runs) == len(script.EXPERIMENT.kinds)
    for run in runs:
        assert len(json.loads(run.read_text())["devices"]) == 2


@pytest.mark.full
def test_two_devices_search(tmp_path, capsys):
    flags = ["permutation_invariant_mnist", "--smoke", "--max-trials", "2"]
    flags += ["--norm-kinds", "none", "layer", "--batch-size", "32"]
    flags += ["--output-dir", str(tmp_path)]
    if refused_on_torch(capsys, tune, *flags):
        return
    end = run_on_two_devices(tune, *flags)
    assert end.returncode == 0, end.stderr
    assert (tmp_path / "trials.csv").read_text().count(",completed,") == 2


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
def test_mixed_precision(tmp_path, alone, dtype):
    flags = ["--mixed-precision", dtype, *alone.flags, str(tmp_path)]
    assert alone.script.main(flags) == 0
    model = keras.models.load_model(tmp_path / "model.keras", compile=False)
    policies = {layer.dtype_policy.name for layer in model._flatten_layers()}
    assert f"mixed_{dtype}" in policies
    # Two or three digits, and float16 starts with steps that overflow.
    assert _results(tmp_path)[alone.compared] == pytest.approx(
        alone.results[alone.compared], rel=0.05
    )
