"""What all scripts have in common, in runs of each.

One smoke on every backend; precision on torch; where there are shared batches,
devices. What ends a run is in test_resume.py.
"""

import importlib
import json
import math
import pathlib
import re

import everyday_tasks
import keras
import permutation_invariant_mnist
import pytest
import skip_thoughts
import tune
from common import files
from scripts import (
    ALONE,
    STUDIES,
    TRAINING,
    plans,
    refusal,
    rows,
    run_on_two_devices,
    run_python,
)

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
    "everyday": NOISE,
    "handwriting_generation": 2e-3,
    # 64 steps make more of rounding than the layers of the others.
    "sequential_mnist": max(NOISE, 1e-2),
    "skip_thoughts": NOISE,
}
# TensorFlow and JAX take minutes to compile all of them. attentive_reader has
# batch statistics.
SOME = [name for name in ALONE if name != "order_embeddings"]
SOME = SOME if BACKEND == "torch" else ["attentive_reader"]
# TensorFlow takes half a minute for each such test, and has others in
# tests/reliability.
jax_too = every_backend if BACKEND == "jax" else pytest.mark.full
# The others take seconds each, and XLA up to half a minute.
QUICK = {"permutation_invariant_mnist", "sequential_mnist"}
QUICK |= {"convolutional_networks", "recurrent_dynamics"}
TASKS = [f"everyday --task {task}" for task in everyday_tasks.TASKS]
FILES = {
    *("args.json", "curves.png", "environment.json", "history.csv"),
    *("metrics.json", "model.keras"),
}
# What some write besides.
WORDS = {"attentive_reader", "order_embeddings", "skip_thoughts"}
TOKENS = ("addition", "characters", "verses", "spelling")
SAMPLES = {
    name: {"samples.png"} for name in ("draw_mnist", "handwriting_generation")
}


def smokes(names):
    """The scripts, most of them for the full run."""
    return [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.full])
        for name in names
    ]


def refused_on_torch(capsys, script, *words):
    """Whether this backend is torch, which has no shared batches here."""
    if BACKEND != "torch":
        return False
    words = [*words, "--distribute", "data-parallel"]
    assert "works on the tensorflow and jax backends" in refusal(
        capsys, script.main, *words
    )
    return True


def _last(folder):
    return files.read_csv(folder / "history.csv")[-1]


# Of the module, so that pytest runs all that use one after the other.
@pytest.fixture(scope="module", params=SOME)
def alone(request, whole):
    """A script, its flags, and a run on one device in float32."""
    name = request.param
    words = [*ALONE[name].split(), "--output-dir"]
    return importlib.import_module(name), words, whole(name, ALONE[name])


# What a study prints, and its files.
STUDY = {
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
    words = ["--smoke", "--output-dir", str(folder)]
    if name == "cartpole" and BACKEND != "jax":
        line = refusal(capsys, script.main, *words)
        assert line.endswith(
            f"runs on the backend jax, not on {BACKEND}: set KERAS_BACKEND=jax"
        )
        assert not folder.exists()
        return
    assert script.main(words) == 0
    said, names = STUDY[name]
    assert said in capsys.readouterr().out
    found = {path.name for path in folder.iterdir()}
    assert found == names | {"args.json", "figure.png"}
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")


@every_backend
@pytest.mark.parametrize(
    "name", smokes([n for n in TRAINING if n != "everyday"] + TASKS)
)
def test_runs_on_this_backend(tmp_path, capsys, packaged, name):
    folder, (name, *words) = tmp_path / "run", name.split()
    script = importlib.import_module(name)
    words = [*words, "--epochs", "1", "--smoke", "--output-dir", str(folder)]
    assert script.main(words) == 0
    out = capsys.readouterr().out
    assert re.search(r" - (loss|.* - loss): \d", out)
    metrics = files.read_json(folder / "metrics.json")
    assert all(map(math.isfinite, metrics.values()))
    assert all(
        key in metrics for key in getattr(script, "COLUMNS", {}).values()
    )
    found = {path.name for path in folder.iterdir()}
    words_of = name in WORDS or words[1] in TOKENS
    extra = {"vocabulary.txt"} if words_of else set()
    assert found == FILES | extra | SAMPLES.get(name, set())
    assert keras.models.load_model(folder / "model.keras").built
    # A run that has ended stays as it is.
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert script.main([*words, "--resume"]) == 0
    assert "is finished" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in folder.iterdir()}


def test_flags_beat_smoke_which_beats_the_preset():
    name = "permutation_invariant_mnist"

    def plan(*words):
        return plans(name, *words)[0]

    assert (plan().units, plan().epochs, plan().data) == (256, 30, "embedded")
    paper = plan("--preset", "paper")
    assert (paper.units, paper.epochs, paper.data) == (1000, 60, "tfds")
    smoke = plan("--preset", "paper", "--smoke", "--units", "5")
    assert (smoke.units, smoke.epochs, smoke.data) == (5, 2, "embedded")
    assert plan("--smoke", "--data", "tfds").data == "tfds"
    # What --smoke does not name stays the preset's.
    assert smoke.learning_rate == paper.learning_rate


# The flag that a comparison varies, and kinds that have none.
COMPARED = {
    "attentive_reader": ("gain", (0.1, 1.0), ("none",)),
    "permutation_invariant_mnist": ("batch_size", (128, 4), ()),
    "sequential_mnist": ("order", ("natural", "permuted"), ()),
}


@pytest.mark.parametrize("name", COMPARED)
def test_a_comparison_runs_every_kind_with_every_value(name):
    flag, values, without = COMPARED[name]
    kinds = importlib.import_module(name).KINDS
    found = plans(name, "--compare", "--seed", "4", "5")
    own = [(plan.norm, vars(plan)[flag], plan.seed) for plan in found]
    assert len({*own}) == len(own)
    assert {*own} == {
        (kind, value, seed)
        for kind in kinds
        for value in ((None,) if kind in without else values)
        for seed in (4, 5)
    }
    # All kinds have their first seed first.
    assert [seed for *_, seed in own] == sorted(seed for *_, seed in own)


def test_a_comparison(tmp_path, capsys, uncompiled):
    """Table, figure and sentence; more seeds; a run that diverged."""
    folder = tmp_path / "runs"
    words = ["--compare", "--smoke", "--units", "4", "--batch-size", "128"]
    words += ["--output-dir", str(folder)]
    script = permutation_invariant_mnist
    assert script.main([*words, "--seed", "0", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("6 networks will be trained")
    assert "[6/6] batch-batch-size-128-seed-1" in out
    (row, *_) = rows(folder / "comparison.csv")
    assert (row["norm"], row["batch size"]) == ("none", "128")
    found = [
        files.read_json(path / "metrics.json")["test_nll"]
        for path in sorted(folder.glob("none-*"))
    ]
    mean, deviation = map(float, row["test NLL"].split(" ± "))
    assert mean == pytest.approx(sum(found) / 2, rel=1e-3)
    assert deviation == pytest.approx(abs(found[0] - found[1]) / 2**0.5, 0.05)
    assert (folder / "comparison.png").stat().st_size > 5000
    # The third seed is added, one of whose runs will have diverged.
    diverging = folder / "none-batch-size-128-seed-0" / "metrics.json"
    more = [*words, "--seed", "0", "1", "2", "--resume"]
    assert script.main(more) == 0
    out = capsys.readouterr().out
    assert out.count("is finished.") == 6
    assert re.search(r"layer minus none .* \(95 % interval .* to .*\)", out)
    diverging.unlink()
    assert script.main(more) == 0  # It is trained again.
    assert diverging.exists()


def test_a_run_that_diverges(tmp_path, capsys, uncompiled):
    words = ["--smoke", "--units", "4", "--norm", "none", "--learning-rate"]
    words += ["1e30", "--output-dir", str(tmp_path)]
    assert permutation_invariant_mnist.main(words) == 1
    captured = capsys.readouterr()
    assert re.search("loss is .*smaller --learning-rate", captured.err)
    assert "diverged (1)" in captured.out
    assert not (tmp_path / "metrics.json").exists()


def test_a_folder_belongs_to_one_run(capsys, tmp_path, uncompiled):
    main = permutation_invariant_mnist.main
    words = ["--smoke", "--units", "4", "--output-dir", str(tmp_path / "a")]
    assert main([*words, "--norm", "none"]) == 0
    for more, message in (
        (("--norm", "none"), "this run, already finished; add --resume"),
        (("--seed", "3", "--resume"), "norm none there, layer here; seed 0 th"),
        (("--compare", "--resume"), "compare False there, True here"),
    ):
        assert message in refusal(capsys, main, *words, *more)
    path = tmp_path / "a" / "args.json"
    record = files.read_json(path)
    for content, message in (
        (json.dumps(record | {"tune": True}), "was made with --tune, which"),
        ("{", "args.json cannot be read"),
        ("[]", "args.json is damaged"),
        ("[" * 100_000, "args.json cannot be read"),
    ):
        path.write_text(content)
        line = refusal(capsys, main, *words, "--norm", "none", "--resume")
        assert message in line
    path.write_text(json.dumps(record))
    for name, content in (
        ("metrics.json", "[1]"),
        ("history.csv", "updates\n" + 200_000 * "1"),
        ("history.csv", "updates\nx\n"),
    ):
        own = tmp_path / "a" / name
        whole = own.read_bytes()
        own.write_text(content)
        line = refusal(capsys, main, *words, "--norm", "none", "--resume")
        assert name in line
        own.write_bytes(whole)


@pytest.mark.full
@jax_too
def test_two_devices_share_a_batch(tmp_path, alone, capsys):
    script, words, folder = alone
    words = [*words, str(tmp_path)]
    if refused_on_torch(capsys, script, *words):
        return
    end = run_on_two_devices(script, *words)
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
    words = ["--smoke", "--compare", "--batch-size", "32"]
    words += ["--output-dir", str(tmp_path)]
    if refused_on_torch(capsys, script, *words):
        return
    end = run_on_two_devices(script, *words, "--batch-size", "5")
    assert end.returncode == 2
    assert "--batch-size: 5 cannot be split evenly over 2 dev" in end.stderr
    end = run_on_two_devices(script, *words)
    assert end.returncode == 0, end.stderr
    found = [*tmp_path.glob("*/environment.json")]
    assert len(found) == len(script.KINDS)
    for run in found:
        assert len(files.read_json(run)["devices"]) == 2


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mixed_precision(tmp_path, alone, dtype):
    script, words, folder = alone
    policy = keras.config.dtype_policy()
    words = ["--mixed-precision", dtype, *words, str(tmp_path)]
    assert script.main(words) == 0
    assert keras.config.dtype_policy() == policy
    model = keras.models.load_model(tmp_path / "model.keras", compile=False)
    policies = {layer.dtype_policy.name for layer in model._flatten_layers()}
    assert f"mixed_{dtype}" in policies
    assert {w.dtype for w in model.trainable_weights} == {"float32"}
    # The logits of all words of two sentences are many.
    expected = dtype if script is skip_thoughts else "float32"
    assert keras.backend.standardize_dtype(model.outputs[0].dtype) == expected
    # Two or three digits, and float16 starts with steps that overflow.
    assert _last(tmp_path)["loss"] == pytest.approx(
        _last(folder)["loss"], rel=0.05
    )


_GO_ON = """
import importlib, sys
import keras
import keras_ln
for path in sys.argv[1:]:
    name = path.rpartition("/")[2]
    if name in ("attentive_reader", "order_embeddings"):
        importlib.import_module(f"{name}_model")
    model = keras.saving.load_model(f"{path}/model.keras")
    assert name not in sys.modules and int(model.optimizer.iterations)
    print(model.count_params())
"""


@pytest.mark.full
def test_a_saved_model_is_loaded_without_the_script(tmp_path):
    """With its loss and the state of its optimizer."""
    names = ("convolutional_networks", *sorted(WORDS))
    paths = []
    for name in names:
        paths.append(tmp_path / name)
        words = ["--smoke", "--epochs", "1", "--output-dir", str(paths[-1])]
        assert importlib.import_module(name).main(words) == 0
    end = run_python("-c", _GO_ON, *paths)
    assert end.returncode == 0, end.stderr
    assert len(end.stdout.split()) == len(names)


def test_no_script_is_left_out():
    scripts = {
        path.stem
        for path in pathlib.Path(tune.__file__).parent.glob("*.py")
        if '__name__ == "__main__"' in path.read_text()
    }
    others = {"tune", "results", "quick_start", "search", "streaming"}
    assert scripts | {"search"} == {*TRAINING, *STUDIES, *others}
