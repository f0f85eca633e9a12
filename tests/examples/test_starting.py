"""How scripts start: help and refusals at once, without a framework."""

import importlib
import re
from pathlib import Path

import pytest
import tune
from common import cli
from scripts import STUDIES, TRAINING, run_python

SCRIPTS = (*TRAINING, *STUDIES, "search", "tune")

# Everything that takes long to import.
_START = """
import runpy, sys
path, *cases = sys.argv[1:]
for case in cases:
    sys.argv = [path, *case.split()]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        print("exit code", end.code)
heavy = {"keras", "keras_ln", "tensorflow", "jax", "torch", "numpy", "scipy"}
heavy |= {"sklearn", "matplotlib", "tensorflow_datasets", "keras_tuner"}
print("imported", sorted(heavy & {*sys.modules}))
"""


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_has_the_endings(name):
    """test_ending.py tries them with three scripts."""
    source = Path(importlib.import_module(name).__file__).read_text()
    main = 'if __name__ == "__main__":\n    ending.execute(main)\n'
    assert source.endswith(main)


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_and_wrong_flags_import_no_framework(tmp_path, name):
    (tmp_path / "a_file").touch()
    own = "permutation_invariant_mnist " if name == "tune" else ""
    wrong = [
        "--nonsense",
        f"--output-dir {tmp_path}/a_file",
        f"--output-dir {tmp_path}/a_file/deeper",
        f"--output-dir {tmp_path}/{300 * 'long'}",
    ]
    if name not in (*STUDIES, "search"):
        wrong += ["--data nowhere", "--norm nonsense", "--seed 1 1"]
        wrong += ["--preset nonsense", "--learning-rate 0"]
    wrong += {
        "attentive_reader": ["--norm batch --batch-size 1"],
        "draw_mnist": ["--read-size 1"],
        "everyday": ["--task", "--task sums", "--task verses --norm bnlstm"],
        "handwriting_generation": ["--text 1"],
        "search": ["--process 3/2", "--task sums", "--points 65"],
        "skip_thoughts": ["--eval-tasks mr"],
        "tune": ["--norm-kinds batch --batch-size 1", "--learning-rates 2 1"],
    }.get(name, [])
    path = importlib.import_module(name).__file__
    cases = [own + flags for flags in ("--help", *wrong)]
    end = run_python("-c", _START, path, *cases)
    *_, imported = end.stdout.splitlines()
    assert imported == "imported []"
    codes = re.findall("^exit code (.*)$", end.stdout, re.M)
    assert codes == ["0", *("2" for _ in wrong)]
    sentences = end.stderr.splitlines()
    assert len(sentences) == len(wrong)
    for sentence in sentences:
        assert sentence.startswith(f"{name}.py") and ": error: " in sentence


@pytest.mark.parametrize("name", TRAINING)
def test_every_script_has_its_model_beside_it(name):
    module = importlib.import_module(name)
    assert module.main and not hasattr(module, "build_model")
    assert importlib.import_module(f"{name}_model").build_model


@pytest.mark.parametrize("name", tune.EXPERIMENTS)
def test_help_shows_what_the_presets_set(capsys, name):
    experiment = cli.find(name)
    with pytest.raises(SystemExit) as end:
        cli.run(experiment, ["--help"])
    assert end.value.code == 0
    _, rest = capsys.readouterr().out.split("values of --preset and --smoke")
    table, _, _ = rest.partition("\n\n")
    _, heading, *lines = table.splitlines()
    assert heading.split() == [*experiment.presets, "--smoke"]
    columns = [*experiment.presets.values(), experiment.smoke]
    found = {line.split()[0]: line.split()[1:] for line in lines}
    named = {flag for column in columns for flag in column}
    assert {*found} == {"--" + flag.replace("_", "-") for flag in named}
    # Numbers as they are typed.
    for flag in ("epochs", "batch_size", "units"):
        values = [str(column[flag]) for column in columns if flag in column]
        assert found["--" + flag.replace("_", "-")] == values
    (quick, *_) = found["--learning-rate"]
    assert float(quick) == columns[0]["learning_rate"]


def test_the_help_of_a_search_has_the_presets_of_what_is_searched(capsys):
    with pytest.raises(SystemExit):
        tune.main(["sequential_mnist", "--help"])
    assert re.search(r"--units +64 +100 +8\n", capsys.readouterr().out)
