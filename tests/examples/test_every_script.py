"""What all scripts have in common, in runs of each.

One smoke on every backend; precision on torch; where there are shared batches,
devices. What ends a run is in test_resume.py.
"""

import importlib
import math
import pathlib
import re

import everyday
import keras
import permutation_invariant_mnist
import pytest
import skip_thoughts
import tune
from common import cli, files
from scripts import ALONE, STUDIES, refusal
from two_devices import run_on_two_devices

every_backend = pytest.mark.every_backend
BACKEND = keras.backend.backend()
# How far the training losses of one and of two devices may be apart. On
# TensorFlow every device draws noise of its own, of which three scripts have
# some in training or evaluation, and clips the gradient of its part.
NOISE = 0.1 if BACKEND == "tensorflow" else 2e-3
DEVICES = {
    "attentive_reader": NOISE,
    "convolutional_networks": 2e-3,
    "draw_mnist": NOISE,
    "handwriting_generation": 2e-3,
    # 64 steps make more of rounding than the layers of the others.
    "sequential_mnist": max(NOISE, 1e-2),
    "skip_thoughts": NOISE,
}
# TensorFlow and JAX take minutes to compile all of them. attentive_reader has
# batch statistics.
SOME = ALONE if BACKEND == "torch" else ("attentive_reader",)
# TensorFlow takes half a minute for each such test, and has others: of the
# sentences of order_embeddings, and in tests/reliability.
jax_too = every_backend if BACKEND == "jax" else pytest.mark.full
# XLA takes up to half a minute for some of the others.
QUICK = (
    *("permutation_invariant_mnist", "convolutional_networks"),
    "sequential_mnist",
)
# What a line says after each evaluation.
SHOWN = {
    "draw_mnist": ["loss", "val_loss", "val_kl"],
    "everyday-forecast": ["loss", "val_loss"],
    "everyday-long_memory": ["loss", "val_loss"],
    "handwriting_generation": ["nll", "val_nll"],
    "order_embeddings": ["loss", "val_loss", "val_recall_sum"],
    "skip_thoughts": ["nll", "val_nll"],
}


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


def _last(folder):
    return files.read_csv(folder / "history.csv")[-1]


# Of the module, so that pytest runs all that use one after the other.
@pytest.fixture(scope="module", params=SOME)
def alone(request, whole):
    """A script, its flags, and a run on one device in float32."""
    name = request.param
    flags = [*ALONE[name].split(), "--output-dir"]
    return importlib.import_module(name), flags, whole(name, ALONE[name])


# What a study prints, and its files.
STUDY = {
    "parameter_geometry": (
        "| normalisation | slope, all units",
        {"divergence.csv", "steps.csv", "table_1.txt"},
    ),
    "recurrent_dynamics": (
        "| RNN  | plain | 0.5",
        {"curves.csv", "dynamics.csv", "spread.csv"},
    ),
    "cartpole": ("| with memory ", {"lengths.csv", "episodes.csv"}),
}


@every_backend
@pytest.mark.parametrize("name", smokes(STUDIES))
def test_a_study_runs_on_this_backend(tmp_path, capsys, name):
    script, folder = importlib.import_module(name), tmp_path / "run"
    flags = ["--smoke", "--output-dir", str(folder)]
    if script.STUDY.backend not in (None, BACKEND):
        line = refusal(capsys, script.main, *flags)
        assert line.endswith(
            f"runs on the backend jax, not on {BACKEND}: set KERAS_BACKEND=jax"
        )
        assert not folder.exists()
        return
    assert script.main(flags) == 0
    said, names = STUDY[name]
    assert said in capsys.readouterr().out
    found = {path.name for path in folder.iterdir()}
    assert found == names | {"args.json", "figure.png"}
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")


# XLA has enough of the other tasks.
PACKAGED = [f"everyday-{task}" for task in everyday.PACKAGED]
PACKAGED = PACKAGED if BACKEND == "torch" else []


@every_backend
@pytest.mark.parametrize("name", smokes((*tune.EXPERIMENTS, *PACKAGED)))
def test_runs_on_this_backend(tmp_path, capsys, packaged, name):
    experiment, folder = cli.find(name), tmp_path / "run"
    flags = ["--smoke", "--epochs", "1", "--output-dir", str(folder)]
    assert cli.run(experiment, flags) == 0
    out = capsys.readouterr().out
    line = re.search(r"^(?:epoch|evaluation) 1/.*$", out, re.MULTILINE)[0]
    # What is done, its seconds, and three numbers at most.
    _, seconds, *logs = line.split("  ")
    assert re.fullmatch(r"\d+\.\d s", seconds)
    names, numbers = zip(*map(str.split, logs), strict=True)
    assert [*names] == SHOWN.get(name, ["loss", "val_loss", "val_accuracy"])
    assert all(map(math.isfinite, map(float, numbers)))
    metrics = files.read_json(folder / "metrics.json")
    assert all(map(math.isfinite, metrics.values()))
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
    script, flags, folder = alone
    flags = [*flags, str(tmp_path)]
    if refused_on_torch(capsys, script, *flags):
        return
    end = run_on_two_devices(script, *flags)
    assert end.returncode == 0, end.stderr
    facts = files.read_json(tmp_path / "environment.json")
    assert len(facts["devices"]) == 2
    one, two = _last(folder), _last(tmp_path)
    assert two["updates"] == one["updates"]
    tolerance = DEVICES[script.__name__]
    assert two["loss"] == pytest.approx(one["loss"], rel=tolerance)


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
        assert len(files.read_json(run)["devices"]) == 2


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
    script, flags, folder = alone
    policy = keras.config.dtype_policy()
    flags = ["--mixed-precision", dtype, *flags, str(tmp_path)]
    assert script.main(flags) == 0
    assert keras.config.dtype_policy() == policy
    model = keras.models.load_model(tmp_path / "model.keras", compile=False)
    policies = {layer.dtype_policy.name for layer in model._flatten_layers()}
    assert f"mixed_{dtype}" in policies
    assert {w.dtype for w in model.trainable_weights} == {"float32"}
    # The logits of all words of two sentences are many.
    expected = dtype if script is skip_thoughts else "float32"
    assert keras.backend.standardize_dtype(model.outputs[0].dtype) == expected
    # Two or three digits, and float16 starts with steps that overflow. A pair
    # counts in the loss of order_embeddings as soon as it is above a margin.
    loss, counts = _last(folder)["loss"], "order_embeddings" in script.__name__
    rel = 0.25 if counts else 0.05
    assert _last(tmp_path)["loss"] == pytest.approx(loss, rel=rel)
