"""What a user gets from installing and importing the package."""

import configparser
import importlib.metadata
import importlib.resources
import re
import runpy
from pathlib import Path
from types import ModuleType

import pytest
from scripts import run_python

import keras_ln
from keras_ln.version import __version__

ROOT = Path(__file__).parents[2]
FRAMEWORKS = {"tensorflow", "jax", "torch"}
REQUIRED = "install_requires"

# Hides packages as if they were not installed: the import system's finders
# answer that they have not found them.
HIDE = """
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *args):
        if name.partition(".")[0] in {hidden!r}:
            return None
        return self.finder.find_spec(name, *args)

sys.meta_path[:] = map(Hiding, sys.meta_path)
"""


def setup_cfg():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def requirements(*extras):
    """Names of the packages that some extras ask for."""
    section = setup_cfg()["options.extras_require"]
    return set().union(*(names(section[extra]) for extra in extras))


def names(lines):
    return {re.match(r"[\w-]+", line)[0] for line in lines.split("\n") if line}


def test_all_is_sorted_and_exact():
    # Submodules appear in dir() as a side effect of being imported.
    public = {
        name
        for name, value in vars(keras_ln).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(keras_ln.__all__) == public | {"__version__"}
    assert keras_ln.__all__ == sorted(keras_ln.__all__)


def test_version_is_stated_once():
    assert keras_ln.__version__ == __version__
    stated = setup_cfg()["metadata"]["version"]
    assert stated == "attr: keras_ln.version.__version__"
    assert f"## {__version__} " in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_py_typed_ships():
    assert importlib.resources.files("keras_ln").joinpath("py.typed").is_file()
    assert setup_cfg()["options.package_data"]["keras_ln"] == "py.typed"


def test_the_kernels_have_the_licence():
    """Their wheel cannot take it from the folder above."""
    licence = (ROOT / "LICENSE").read_bytes()
    assert (ROOT / "kernels" / "LICENSE").read_bytes() == licence


def test_readme_shows_in_every_checkout_and_on_an_index():
    """Links and pictures are files; setup.py makes them absolute."""
    find = re.compile(r"\]\(([^)]*)\)")
    text = (ROOT / "README.md").read_text()
    address = setup_cfg()["metadata"]["url"]
    assert address not in text
    files = [t for t in find.findall(text) if not t.startswith("https://")]
    assert len(files) > 5
    for target in files:
        assert (ROOT / target.partition("#")[0]).exists(), target
    setup = runpy.run_path(str(ROOT / "setup.py"))
    shown = find.findall(setup["described"](text, address))
    assert [t for t in shown if not t.startswith("https://")] == []
    assert f"{address}/raw/main/docs/figures/cell.png" in shown
    assert f"{address}/blob/main/docs/speed.md" in shown


def extras_to_hide():
    """Modules of the optional packages, but for SciPy, which JAX requires."""
    extras = requirements("examples", "tune", "test", "dev")
    kept = {"keras-ln", "scipy", *FRAMEWORKS}
    wanted = {name.lower() for name in extras} - kept
    return {
        module
        for module, names in importlib.metadata.packages_distributions().items()
        if wanted & {name.lower() for name in names}
    }


@pytest.mark.full
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_import_works_with_one_framework_present(framework):
    """And with nothing of the extras."""
    hidden = extras_to_hide() | FRAMEWORKS - {framework}
    assert {"matplotlib", "sklearn", "keras_tuner", "pytest"} <= hidden
    code = HIDE.format(hidden=hidden) + (
        f"others = {sorted(FRAMEWORKS - {framework})}\n"
        "import importlib.util\n"
        "assert not any(map(importlib.util.find_spec, others))\n"
        "import keras, keras_ln\n"
        "layer = keras_ln.LayerNormalization()\n"
        "print(keras.config.backend(), layer(keras.ops.ones((2, 3))).shape)\n"
    )
    done = run_python("-c", code, KERAS_BACKEND=framework)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(framework)


def test_import_without_a_framework_says_what_to_install():
    hidden = FRAMEWORKS | {"keras"}  # Whose own error would come first.
    code = HIDE.format(hidden=hidden) + "import keras_ln"
    done = run_python("-c", code, KERAS_BACKEND="jax")
    assert done.returncode == 1
    last_line = done.stderr.strip().splitlines()[-1]
    assert last_line.startswith("ImportError: keras_ln runs on TensorFlow, JAX")
    assert "pip install tensorflow" in last_line
    # To infer with OpenVINO Keras needs none of them.
    done = run_python("-c", code, KERAS_BACKEND="openvino")
    assert done.stderr.endswith("No module named 'keras'\n")


@pytest.mark.parametrize(
    "hidden, variable, file, words",
    [
        ({"tensorflow"}, "", None, ["tensorflow, its default", "jax", "torch"]),
        ({"tensorflow", "jax"}, "", None, ["tensorflow, its default", "torch"]),
        ({"torch", "jax"}, "", "jax", ["jax, by keras.json", "tensorflow"]),
        (
            {"torch"},
            "torch",
            "jax",
            ["torch, by KERAS_BACKEND", "tensorflow", "jax"],
        ),
    ],
)
@pytest.mark.parametrize(
    "start", ["import keras_ln", "import runpy; runpy.run_module('keras_ln')"]
)
def test_import_says_which_framework_to_choose(
    start, hidden, variable, file, words, tmp_path
):
    """Before any of them is imported, or Keras, whose error names one only."""
    if file is not None:
        (tmp_path / "keras.json").write_text(f'{{"backend": "{file}"}}')
    code = HIDE.format(hidden=hidden) + (
        "try:\n"
        f"    {start}\n"
        "except ImportError as error:\n"
        "    print(error)\n"
        f"print({FRAMEWORKS | {'keras'}} & {{*sys.modules}})\n"
    )
    home = {"KERAS_HOME": str(tmp_path)}
    done = run_python("-c", code, KERAS_BACKEND=variable, **home)
    message, imported = done.stdout.splitlines()
    assert imported == "set()"
    missing, *others = words
    assert message.startswith(f"Keras would run on {missing}, which is not in")
    for name in FRAMEWORKS:
        assert (f"KERAS_BACKEND={name}" in message) == (name in others)
    # The file changes nothing where the variable is set.
    assert (str(tmp_path) in message) == (not variable)


def test_no_framework_is_required():
    """And none has an upper limit, beyond which pip would replace it."""
    options = setup_cfg()["options"]
    extras = setup_cfg()["options.extras_require"]
    for needed in ("keras", "numpy", *FRAMEWORKS):
        line = extras[needed] if needed in FRAMEWORKS else options[REQUIRED]
        (found,) = re.findall(rf"^{needed}>=[\d.]+$", line, re.M)
    assert not FRAMEWORKS & names(options[REQUIRED])
    assert not FRAMEWORKS & requirements("tune", "test")
    assert "tensorflow" in requirements("examples")


def test_import_names_the_backends_that_work():
    code = "import keras; keras.backend.backend = lambda: 'other'\n"
    done = run_python("-c", f"{code}import keras_ln", KERAS_BACKEND="jax")
    assert done.returncode == 1
    last_line = done.stderr.strip().splitlines()[-1]
    assert last_line.startswith("ImportError: keras_ln runs on the Keras")
    backends = {*FRAMEWORKS, "numpy", "openvino"}
    assert all(backend in last_line for backend in backends)
    assert "Received: 'other'" in last_line
