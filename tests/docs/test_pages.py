"""The site without building it: code on its pages, names, notebooks."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.measured import load

import keras_ln
from docs import pages

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = pages.pages()
# Code that does not run here, by its page and first line, and why.
ELSEWHERE = {
    (
        "docs/guides/devices.md",
        "keras.distribution.initialize(",
    ): "it needs two machines",
    (
        "docs/guides/export.md",
        "with keras_ln.ops.portable():",
    ): "`run_all.py exports` runs it, with the packages that ONNX takes",
    (
        "docs/replace.md",
        "layer = keras_ln.LNLSTM(units, center=False, zoneout=0.1)",
    ): ("haste is not installed"),
    ("docs/replace.md", "import numpy as np"): "tf_keras is not installed",
}
MODEL = """
import keras, keras_ln, numpy as np
def build_model():
    sizes = [keras.Input((5, 3)), keras_ln.LNLSTM(4), keras.layers.Dense(1)]
    return keras.Sequential(sizes)
x, y = np.ones((4, 5, 3), "float32"), np.ones((4, 1), "float32")
"""
# Code that runs alone, by its page and first line: the backend, TensorFlow
# where it needs none, and what stands before it and after it, as users have it.
ALONE = {
    ("docs/guides/devices.md", "import keras"): (
        "jax",
        "",
        MODEL + "model = build_model()\n"
        'model.compile("sgd", "mse")\nmodel.fit(x, y)\n'
        "import jax\nassert jax.device_count() == 2\n"
        "kernel = model.weights[0].value\n"
        "assert len(kernel.sharding.device_set) == 2\n",
    ),
    ("docs/guides/devices.md", "import tensorflow as tf"): (
        "tensorflow",
        MODEL + "import tensorflow as tf\n"
        "data = tf.data.Dataset.from_tensor_slices((x, y)).batch(2)\n",
        "",
    ),
    ("docs/guides/devices.md", "import torch"): (
        "torch",
        MODEL + "import os, torch\nx = torch.ones(4, 5, 3)\n"
        'os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}\n'
        'os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}\n',
        "assert tuple(outputs.shape) == (4, 1)\n"
        "torch.distributed.destroy_process_group()\n",
    ),
    ("docs/guides/export.md", 'model.export("folder")'): (
        "tensorflow",
        MODEL + "model = build_model()\n",
        "import tensorflow as tf\n"
        'served = tf.saved_model.load("folder")\n'
        "assert np.allclose(served.serve(x), model(x), atol=1e-6)\n",
    ),
    ("docs/guides/packing.md", "import tensorflow as tf"): (
        "tensorflow",
        MODEL + "inputs, first, targets = x, np.repeat(y > 0, 5, 1), y\n"
        "tokens = keras.Input((5, 3))\n"
        'flags = keras.Input((5,), dtype="bool")\n'
        "h = keras_ln.LNGRU(1)(tokens, reset=flags)\n"
        "model = keras.Model([tokens, flags], h)\n"
        'model.compile("sgd", "mse")\n',
        "assert model.optimizer.iterations == 2\n",
    ),
    ("docs/guides/export.md", "with keras_ln.ops.portable(unroll=True):"): (
        "tensorflow",
        MODEL + "model = keras.Sequential([keras.Input((20, 8)), "
        "keras_ln.LNLSTM(4)])\n",
        "import tensorflow as tf\n"
        'interpreter = tf.lite.Interpreter("model.tflite")\n'
        "interpreter.allocate_tensors()\n",
    ),
    ("docs/replace.md", "import json"): (
        "tensorflow",
        "import numpy as np\n"
        "shapes = [(3, 16), (4, 16), 16, 16, 16, 16, 16, 4, 4]\n"
        'old = {f"rnn/{k}": np.ones(s) for k, s in enumerate(shapes)}\n'
        'old |= {"rnn/count": 9, "rnn/config": \'{"units": 4}\'}\n'
        'np.savez("old_model.npz", **old)\n',
        "assert np.all(layer.cell.get_weights()[0] == 1)\n",
    ),
    ("docs/replace.md", "import tensorflow as tf"): (
        "tensorflow",
        "import tensorflow as tf\n"
        'names = ["kernel", "kernel/Adam"]\n'
        'names = ["rnn/layer_norm_basic_lstm_cell/" + n for n in names]\n'
        'names.append("dense/kernel")\n'
        'tf.raw_ops.SaveV2(prefix="model.ckpt", tensor_names=names, '
        'shape_and_slices=[""] * 3, tensors=[tf.ones((7, 16))] * 3)\n',
        "assert {n: w.shape for n, w in weights.items()} "
        "== {names[0]: (7, 16)}\n",
    ),
    ("docs/replace.md", 'model.get_layer("dense").set_weights('): (
        "tensorflow",
        MODEL + "model = keras.Sequential([keras.Input((3,)), "
        'keras.layers.Dense(1, name="dense")])\n'
        'old = {"dense/0": np.ones((3, 1)), "dense/1": y[0] + 1}\n'
        'old["dense/count"] = 2\n',
        "assert float(model(np.ones((1, 3)))[0, 0]) == 5\n",
    ),
    ("docs/replace.md", "new = build_model_with_keras_3()"): (
        "tensorflow",
        MODEL + "def build_model_with_keras_3():\n"
        "    lstm = keras.layers.LSTM(4)\n"
        "    return keras.Sequential([keras.Input((5, 3)), lstm])\n"
        "saved = build_model_with_keras_3().get_weights()\n"
        'np.savez("weights.npz", *saved)\n',
        "assert isinstance(normalized.layers[0], keras_ln.LNLSTM)\n"
        "assert np.all(new.get_weights()[1] == saved[1])\n",
    ),
}


# Pages that choose a backend run there, in a process that has not chosen.
CHOOSES = re.compile(r'^os\.environ\["KERAS_BACKEND"\] = "(\w+)"', re.MULTILINE)
CHOSEN = {
    page: match[1]
    for page, blocks in PAGES.items()
    for _, code, _ in blocks
    if (match := CHOOSES.search(code))
}
BACKEND = os.environ["KERAS_BACKEND"]


def run_alone(code, folder):
    # As users run it: the tests' JAX has float64.
    environment = os.environ | {
        "JAX_ENABLE_X64": "0",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, check=True
    )


@pytest.mark.every_backend
@pytest.mark.parametrize(
    "place",
    [
        *(page for page, backend in CHOSEN.items() if backend == BACKEND),
        *(place for place in ALONE if ALONE[place][0] == BACKEND),
    ],
    ids=str,
)
def test_code_that_needs_a_process_runs(place, tmp_path):
    if place in ALONE:
        _, before, after = ALONE[place]
        code = before + pages.elsewhere()[place] + after
    else:
        assert not any(indent or shown for indent, _, shown in PAGES[place])
        code = "\n".join(code for _, code, _ in PAGES[place])
    run_alone(code, tmp_path)


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("page", sorted(PAGES.keys() - CHOSEN.keys()))
def test_code_on_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages.run(page, PAGES[page])


def test_code_that_does_not_run_is_listed():
    assert pages.elsewhere().keys() == ELSEWHERE.keys() | ALONE.keys()


def test_extras_that_guides_name():
    assert pages.extras("docs/guides/searching.md") == ("tune",)
    assert pages.extras("docs/guides/masks.md") == ()


def test_pages_have_code():
    """The test above can fail."""
    assert len(PAGES) > 8
    assert {*CHOSEN.values()} <= {*pages.FRAMEWORKS}
    assert CHOSEN
    assert sum(len(blocks) for blocks in PAGES.values()) > 20
    ((_, code, shown),) = pages.BLOCK.findall(
        "```python\nprint(1)\n```\n\n```text\n1\n```\n"
    )
    assert (code, shown) == ("print(1)\n", "1\n")


def documented():
    """The names on the API pages."""
    found = set()
    for path in (DOCS / "api").glob("*.md"):
        module = None
        for line in path.read_text().splitlines():
            if match := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = match[1]
            elif match := re.match(r"\.\. auto\w+:: (\S+)", line):
                found.add(f"{module}.{match[1]}")
    return found


def public():
    """The public names, but for the version and the modules themselves."""
    names = {f"keras_ln.{name}" for name in keras_ln.__all__}
    for part in ("analysis", "compat", "ops"):
        module = getattr(keras_ln, part)
        names |= {f"keras_ln.{part}.{name}" for name in module.__all__}
    tuning = vars(keras_ln.tuning)
    names |= {
        f"keras_ln.tuning.{name}"
        for name, value in tuning.items()
        if getattr(value, "__module__", None) == "keras_ln.tuning"
        and not name.startswith("_")
    }
    return names - {"keras_ln.__version__"}


def test_every_public_name_has_its_place():
    assert documented() == public()


@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")))
def test_notebooks(path):
    """Written as they are run: in Colab by the first cell of code."""
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    for cell in code:
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
    address = load("extensions/repository.py").ADDRESS
    assert f"pip install -q git+{address}\n" in code[0]["source"] + "\n"
    place = path.relative_to(ROOT).as_posix()
    colab = address.replace(
        "//github.com", "//colab.research.google.com/github"
    )
    assert f"({colab}/blob/main/{place})" in cells[0]["source"]
    assert cells[-1]["source"].startswith("## Conclusion\n")


def test_tests_that_reliability_names_are_there():
    named = re.findall(
        r"::(test_\w+)`", (ROOT / "RELIABILITY.md").read_text(encoding="utf-8")
    )
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "tests").rglob("test_*.py")
    )
    assert len(named) > 20
    assert [name for name in named if f"def {name}(" not in code] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_what_a_build_is_checked_for(tmp_path):
    build = load("build.py")
    page = tmp_path / "index.html"
    page.write_text(
        '<a href="#here">x</a><p id="here"></p><a href="https://x.org">x</a>'
        '<img src="data:image/png;base64,">'
    )
    assert build.faults(tmp_path) == ([], 1)
    page.write_text(
        '<a href="#there">x</a><a href="other.html">x</a>'
        '<script src="https://cdn.org/x.js"></script>'
        '<link rel="stylesheet" href="//fonts.org/x.css">'
        '<link rel="canonical" href="https://x.org">'
    )
    (tmp_path / "x.css").write_text("a {background: url(https://x.org/y)}")
    found, links = build.faults(tmp_path)
    assert links == 2
    assert len(found) == 5
    assert "no such anchor" in "".join(found)
