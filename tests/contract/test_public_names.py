"""The names, documentation and types that a user's program finds."""

import inspect
import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest
from descriptors import ROWS

import keras_ln

ROOT = Path(__file__).parents[2]

SUBMODULES = """
import sys
import keras_ln

def imported():
    names = ("analysis", "compat", "tuning")
    return [name for name in names if f"keras_ln.{name}" in sys.modules]

assert not imported(), imported()
assert {*keras_ln.__all__, "analysis", "layers", "ops"} <= {*dir(keras_ln)}
assert not imported(), imported()
keras_ln.analysis.invariance_table
assert imported() == ["analysis"], imported()
keras_ln.compat.load_tfa_lstm, keras_ln.tuning.choose_recurrent
try:
    keras_ln.analyses
except AttributeError as error:
    assert str(error) == "module 'keras_ln' has no attribute 'analyses'"
else:
    raise SystemExit("a name that is not there")
"""

# Some lines, and what mypy says of each: None for nothing.
TYPED = {
    'keras_ln.LNLSTM(32, use_fused="auto", normalize=("kernel",))': None,
    "keras_ln.layers.LNGRU(32, activation=None, epsilon=1, seed=3)": None,
    "keras_ln.LayerNormalization(axis=(1, 2), gamma_initializer=abs)": None,
    "keras_ln.analysis.invariance_table": None,
    "keras_ln.tuning.choose_recurrent": None,
    'keras_ln.LNLSTM("32")': '"str"; expected "int"',
    'keras_ln.LNLSTM(32, use_fused="maybe")': "Literal['maybe']",
    'keras_ln.LNGRU(32, normalize="kernel")': 'Argument "normalize"',
    "keras_ln.LNSimpleRNN(3, kernel_regularizer=0.1)": "kernel_regularizer",
    "keras_ln.BNLSTM(32, max_steps=2.5)": 'Argument "max_steps"',
    "keras_ln.WNLSTMCell(32, seed=0.5)": 'Argument "seed"',
    "keras_ln.WeightNormDense(3, use_bias=None)": 'Argument "use_bias"',
    "keras_ln.BatchNormalization(axis=(1, 2))": 'Argument "axis"',
    "keras_ln.RecurrentBatchNorm(unbiased=0.5)": 'Argument "unbiased"',
    "keras_ln.LNLSTM(32).get_config() + 1": '"dict[str, Any]" and "int"',
    "keras_ln.LNLTSM(32)": 'has no attribute "LNLTSM"',
    "keras_ln.LNLSTM.from_config([])": '"list[Never]"',
}


def test_layers_are_in_keras_ln_layers_too():
    assert keras_ln.layers.__all__ == sorted(row.name for row in ROWS)
    for name in keras_ln.layers.__all__:
        assert getattr(keras_ln.layers, name) is getattr(keras_ln, name)


def test_submodules_are_imported_on_first_use():
    subprocess.run(
        [sys.executable, "-c", SUBMODULES],
        cwd=ROOT,
        # The one that is imported fastest.
        env=os.environ | {"KERAS_BACKEND": "jax"},
        check=True,
    )


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_help_shows_every_argument(row):
    text = pydoc.plain(pydoc.render_doc(row.layer_class))
    listed = re.findall(r"^ \|      (?:\*\*)?(\w+): ", text, re.MULTILINE)
    arguments = [*inspect.signature(row.layer_class).parameters]
    assert [name for name in arguments if name not in listed] == []
    # A union of types would be printed for each initializer.
    assert "Callable" not in text.split(" |  \n")[0]


@pytest.mark.parametrize(
    "public",
    [
        *(row.layer_class for row in ROWS),
        *(getattr(keras_ln.ops, name) for name in keras_ln.ops.__all__),
    ],
    ids=lambda public: public.__name__,
)
def test_arguments_are_documented_once(public):
    document = inspect.getdoc(public)
    assert not re.search(r"\{\w*\}(?!_)", document)
    block = document.partition("\nArgs:\n")[2].partition("\n\n")[0]
    listed = re.findall(r"^    (?:\*\*)?(\w+): ", block, re.MULTILINE)
    assert sorted(listed) == sorted(inspect.signature(public).parameters)
    assert max(map(len, document.split("\n"))) <= 80


@pytest.mark.full
def test_types_of_a_users_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("\n".join(["import keras_ln", *TYPED, ""]))
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file", os.devnull),
            *("--cache-dir", tmp_path / "cache", program),
        ],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    said = re.findall(r"program\.py:(\d+): error: (.*)", checked.stdout)
    found = {}
    for line, message in said:
        found.setdefault(int(line), []).append(message)
    for line, (code, message) in enumerate(TYPED.items(), start=2):
        if message is None:
            assert line not in found, (code, found[line])
        else:
            assert message in "".join(found.get(line, [])), (code, found)
