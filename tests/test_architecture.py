"""The package's one-way rule: layers -> ops -> backend, one step at a time.

`analysis`, `compat` and `tuning` read layers and ops, and nobody imports
them. A framework is imported by the backend module of its name and by no other
file, however late in the program.
"""

import ast
from pathlib import Path

import pytest

import keras_ln

PACKAGE = Path(keras_ln.__file__).parent

# What a part of the package may import of the rest of it. "" is
# keras_ln/__init__.py.
MAY_IMPORT = {
    "": {"layers", "version"},
    "layers": {"layers", "ops"},
    "ops": {"ops", "backend"},
    "backend": {"backend"},
    "analysis": {"analysis", "layers", "ops"},
    "compat": {"compat", "layers"},
    "tuning": {"tuning", "layers", "ops"},
    "version": set(),
}
BACKEND_OF = {
    "tensorflow": "tensorflow",
    "jax": "jax",
    "jaxlib": "jax",
    "torch": "torch",
}


def run_nodes(tree):
    """All nodes but those that only type checkers read."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith(
            "TYPE_CHECKING"
        ):
            for statement in node.orelse:
                yield from run_nodes(statement)
        else:
            yield from run_nodes(node)


def imported_names(source, path):
    """Dotted names that a file imports, anywhere in it."""
    package = ("keras_ln", *Path(path).parent.parts)
    for node in run_nodes(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1]
            prefix = ".".join(base) if node.level else ""
            module = ".".join(filter(None, (prefix, node.module)))
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            # importlib.import_module("jax"), __import__("jax")
            called = ast.unparse(node.func).rpartition(".")[2]
            name = node.args[0]
            if called in ("import_module", "__import__") and isinstance(
                name, ast.Constant
            ):
                yield name.value


def offences(source, path):
    """Sentences on what a file, at `path` below keras_ln/, imports wrongly."""
    found = []
    part = Path(path).parts[0].removesuffix(".py")
    part = "" if part == "__init__" else part
    for name in imported_names(source, path):
        root, *rest = name.split(".")
        if root == "keras_ln":
            target = rest[0] if rest else ""
            if target not in MAY_IMPORT[part]:
                found.append(f"{path} imports {name}")
                continue
        if part == "backend" and root == "keras_ln":
            continue
        # Every component counts: Keras passes the frameworks on, as in
        # keras.src.utils.module_utils.tensorflow.
        for component in (root, *rest):
            framework = BACKEND_OF.get(component)
            if framework and path != f"backend/{framework}.py":
                found.append(f"{path} imports a framework: {name}")
    return found


def test_every_file_of_the_package_keeps_the_rule():
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > len(MAY_IMPORT)
    wrong = [
        sentence
        for file in files
        for sentence in offences(
            file.read_text(), file.relative_to(PACKAGE).as_posix()
        )
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "path, source",
    [
        ("layers/rnn/ln_gru.py", "from keras_ln.backend import scan"),
        ("layers/rnn/ln_gru.py", "from ...backend import scan"),
        ("layers/rnn/ln_gru.py", "from keras_ln import backend"),
        ("layers/rnn/ln_gru.py", "import keras_ln"),
        ("ops/ln_gru.py", "from keras_ln.layers.rnn import ln_gru"),
        ("ops/ln_gru.py", "from .. import layers"),
        ("ops/ln_gru.py", "import keras_ln.backend.tensorflow"),
        ("backend/jax.py", "from keras_ln.ops import activations"),
        ("analysis/fisher.py", "from keras_ln import backend"),
        ("layers/rnn/ln_gru.py", "from keras_ln.analysis import fisher"),
        ("ops/ln_gru.py", "from keras_ln import tuning"),
        ("tuning.py", "import keras_ln.analysis"),
        ("ops/ln_lstm.py", "from keras_ln import compat"),
        ("__init__.py", "from keras_ln.analysis import fisher"),
        ("__init__.py", "from keras_ln.backend import scan"),
        ("ops/ln_gru.py", "import jax.numpy as jnp"),
        ("ops/ln_gru.py", "def late():\n    from torch import nn"),
        ("ops/ln_gru.py", "import importlib as i\ni.import_module('torch')"),
        ("ops/ln_gru.py", "tf = __import__('tensorflow')"),
        (
            "ops/ln_gru.py",
            "from keras.src.utils.module_utils import tensorflow",
        ),
        (
            "__init__.py",
            "import typing\nif typing.TYPE_CHECKING:\n    pass\n"
            "else:\n    from keras_ln import analysis",
        ),
        ("backend/__init__.py", "import jaxlib"),
        ("backend/torch.py", "import tensorflow as tf"),
        ("version.py", "from keras_ln import layers"),
    ],
)
def test_the_rule_catches(path, source):
    assert offences(source, path)


@pytest.mark.parametrize(
    "path, source",
    [
        ("__init__.py", "from keras_ln.layers.rnn.ln_gru import LNGRU"),
        (
            "__init__.py",
            "import typing\nif typing.TYPE_CHECKING:\n"
            "    from keras_ln import analysis",
        ),
        ("layers/rnn/ln_gru.py", "from keras_ln import ops"),
        ("layers/rnn/ln_gru.py", "from .base_rnn import BaseRNN"),
        ("layers/rnn/ln_gru.py", "from keras_ln.ops.ln_gru import ln_gru"),
        ("ops/ln_gru.py", "import keras\nfrom keras_ln import backend"),
        ("analysis/fisher.py", "from keras_ln import layers, ops"),
        ("tuning.py", "from keras_ln.layers import LNGRU\nimport keras_tuner"),
        ("backend/__init__.py", "from keras_ln.backend import tensorflow"),
        ("backend/jax.py", "import jax\nfrom jax import numpy as jnp"),
    ],
)
def test_the_rule_allows(path, source):
    assert not offences(source, path)
