"""What all scripts have in common, in runs of each.

One smoke on every backend; precision and kills on torch; where there are shared
batches, devices, but of order-embeddings, whose loss is a sum over the other
pairs on a device.
"""

import importlib
import json
import math
import pathlib
import re
import types
from typing import NamedTuple

import keras
import numpy as np
import permutation_invariant_mnist
import pytest
import skip_thoughts
import tune
from common import cli, files, training
from same_results import assert_same_results
from scripts import STUDIES
from two_devices import run_on_two_devices

every_backend = pytest.mark.every_backend

# Of each script a kind, what makes its runs smaller, and how far the training
# losses of one and of two devices may be apart. On TensorFlow every
# device draws noise of its own, of which three scripts have some in training or
# evaluation, and clips the gradient of its part.
BACKEND = keras.backend.backend()
NOISE = 0.1 if BACKEND == "tensorflow" else 2e-3
SCRIPTS = {
    "attentive_reader": ("batch-everywhere", [], NOISE),
    "convolutional_networks": ("layer", ["--batch-size", "16"], 2e-3),
    "draw_mnist": ("layer", ["--batch-size", "16"], NOISE),
    "handwriting_generation": ("layer", ["--batch-size", "16"], 2e-3),
    # 64 steps make more of rounding than the layers of the others.
    "sequential_mnist": ("layer", ["--batch-size", "16"], max(NOISE, 1e-2)),
    "skip_thoughts": ("layer", ["--evaluate-every", "8"], NOISE),
}
# TensorFlow and JAX take minutes to compile all of them. attentive_reader has
# batch statistics.
SOME = SCRIPTS if BACKEND == "torch" else ("attentive_reader",)
# TensorFlow takes half a minute for each such test, and has others: of the
# sentences of order_embeddings, and in tests/reliability.
jax_too = every_backend if BACKEND == "jax" else pytest.mark.full
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
    assert not list(pathlib.Path(flags[-1]).glob("*"))
    return True


def _results(folder):
    return json.loads((folder / "metrics.json").read_text())


def _last(folder):
    return files.read_csv(folder / "history.csv")[-1]


class Run(NamedTuple):
    """A script with flags, and its last evaluation on one device in float32."""

    script: types.ModuleType
    flags: list[str]
    folder: pathlib.Path
    tolerance: float


# Of the module, so that pytest runs all that use one after the other.
@pytest.fixture(scope="module", params=SOME)
def alone(request, tmp_path_factory):
    """A run to compare with others on other devices, in other types, killed."""
    name = request.param
    norm, flags, tolerance = SCRIPTS[name]
    script = importlib.import_module(name)
    folder = tmp_path_factory.mktemp(name)
    flags = ["--smoke", "--norm", norm, "--decay", "cosine", *flags]
    flags.append("--output-dir")
    assert script.main([*flags, str(folder)]) == 0
    return Run(script, flags, folder, tolerance)


@every_backend
@pytest.mark.parametrize("name", smokes(STUDIES))
def test_a_study_runs_on_this_backend(tmp_path, name):
    script, folder = importlib.import_module(name), tmp_path / "run"
    assert script.main(["--smoke", "--output-dir", str(folder)]) == 0
    assert list(folder.glob("*.png"))


@every_backend
@pytest.mark.parametrize("name", smokes(tune.EXPERIMENTS))
def test_runs_on_this_backend(tmp_path, capsys, name):
    experiment, folder = cli.find(name), tmp_path / "run"
    flags = ["--smoke", "--epochs", "1", "--output-dir", str(folder)]
    assert cli.run(experiment, flags) == 0
    out = capsys.readouterr().out
    line = re.search(r"^(?:epoch|evaluation) 1/.*$", out, re.MULTILINE)[0]
    # What is done, its seconds, and three numbers at most.
    assert 3 <= len(line.split("  ")) <= 5, line
    assert all(map(math.isfinite, _results(folder).values()))
    assert keras.models.load_model(folder / "model.keras").built


if BACKEND == "tensorflow":  # which alone traces

    @every_backend
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
@jax_too
def test_two_devices_share_a_batch(tmp_path, alone, capsys):
    flags = [*alone.flags, str(tmp_path)]
    if refused_on_torch(capsys, alone.script, *flags):
        return
    end = run_on_two_devices(alone.script, *flags)
    assert end.returncode == 0, end.stderr
    devices = json.loads((tmp_path / "environment.json").read_text())["devices"]
    assert len(devices) == 2
    one, two = _last(alone.folder), _last(tmp_path)
    assert two["updates"] == one["updates"]
    assert two["loss"] == pytest.approx(one["loss"], rel=alone.tolerance)


class Kill(keras.callbacks.Callback):
    """Ends the training within the second epoch.

    TensorFlow may run all batches of an epoch as one.
    """

    def on_train_batch_end(self, batch, logs=None):
        if self.epoch == 1:
            raise KeyboardInterrupt

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch


@pytest.mark.full
def test_a_killed_run_goes_on_to_the_same_end(tmp_path, alone, monkeypatch):
    fit = keras.Model.fit

    def dying(self, *args, callbacks, **kwargs):
        return fit(self, *args, callbacks=[*callbacks, Kill()], **kwargs)

    flags = [*alone.flags, str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(keras.Model, "fit", dying)
        with pytest.raises(KeyboardInterrupt):
            alone.script.main(flags)
    assert (tmp_path / training.BACKUP).exists()
    assert alone.script.main([*flags, "--resume"]) == 0
    assert_same_results(alone.folder, tmp_path, "metrics.json")
    both = [
        keras.models.load_model(folder / "model.keras", compile=False)
        for folder in (alone.folder, tmp_path)
    ]
    for one, two in zip(*(m.get_weights() for m in both), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.full
@jax_too
def test_two_devices_train_a_comparison(tmp_path, capsys):
    script = permutation_invariant_mnist
    flags = ["--smoke", "--compare", "--batch-size", "32"]
    flags += ["--output-dir", str(tmp_path)]
    if refused_on_torch(capsys, script, *flags):
        return
    end = run_on_two_devices(script, *flags, "--batch-size", "5")
    assert end.returncode == 2
    assert "--batch-size: 5 cannot be split evenly over 2 dev" in end.stderr
    end = run_on_two_devices(script, *flags)
    assert end.returncode == 0, end.stderr
    runs = [*tmp_path.glob("*/environment.json")]
    assert len(runs) == len(script.EXPERIMENT.kinds)
    for run in runs:
        assert len(json.loads(run.read_text())["devices"]) == 2


@pytest.mark.full
@jax_too
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
    policy = keras.config.dtype_policy()
    flags = ["--mixed-precision", dtype, *alone.flags, str(tmp_path)]
    assert alone.script.main(flags) == 0
    assert keras.config.dtype_policy() == policy
    model = keras.models.load_model(tmp_path / "model.keras", compile=False)
    policies = {layer.dtype_policy.name for layer in model._flatten_layers()}
    assert f"mixed_{dtype}" in policies
    assert {w.dtype for w in model.trainable_weights} == {"float32"}
    # The logits of all words of two sentences are many.
    expected = dtype if alone.script is skip_thoughts else "float32"
    assert keras.backend.standardize_dtype(model.outputs[0].dtype) == expected
    # Two or three digits, and float16 starts with steps that overflow.
    loss = _last(alone.folder)["loss"]
    assert _last(tmp_path)["loss"] == pytest.approx(loss, rel=0.05)
