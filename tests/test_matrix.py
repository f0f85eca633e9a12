"""The parts of tests/matrix.py that need no environment."""

import configparser
import re

import matrix
import pytest

ROW = dict.fromkeys(matrix.COLUMNS, "")


def row(name, goldens="26 passed", part="9 passed"):
    return ROW | {"name": name, "goldens": goldens, "part": part}


@pytest.mark.parametrize(
    "output, result",
    [
        ("...\n26 passed, 12 warnings in 58.01s\n", "26 passed"),
        ("F.\n1 failed, 24 passed in 3.00s (0:01:32)", "1 failed, 24 passed"),
        ("2 passed\n1 error in 2.00s", "1 error"),
        ("26 passed in 5.03s\nnanobind: leaked 4 instances!\n", "26 passed"),
        ("Fatal Python error: Aborted", "did not end"),
        ("", "did not end"),
    ],
)
def test_result_of_pytest(output, result):
    assert matrix.pytest_result(output) == result
    assert matrix.passed(result) == (result == "26 passed")


def test_what_fails_the_run():
    rows = [
        row("tensorflow-floor"),
        row("tensorflow-middle", goldens="no interpreter", part=""),
        row("tensorflow-newest", goldens="not installed", part=""),
        row("jax-floor", goldens="1 failed, 25 passed", part=""),
        row("jax-newest", part="1 failed, 8 passed"),
        row("jax-nightly", part="1 failed, 8 passed"),
    ]
    failed = ["tensorflow-newest", "jax-floor", "jax-newest"]
    assert matrix.failures(rows) == failed


def test_rows_replace_those_of_the_same_name(tmp_path):
    path = tmp_path / "matrix.csv"
    matrix.write([row("jax-floor"), row("jax-newest")], path)
    matrix.write([row("jax-floor", part="8 passed"), row("torch-floor")], path)
    lines = path.read_text().splitlines()
    assert lines == [
        ",".join(matrix.COLUMNS),
        "jax-floor,,,,,26 passed,8 passed",
        "jax-newest,,,,,26 passed,9 passed",
        "torch-floor,,,,,26 passed,9 passed",
    ]
    shown = matrix.shown([row("jax-floor")]).splitlines()
    assert shown[0].split() == [*matrix.COLUMNS]
    assert shown[1].split() == ["jax-floor", "26", "passed", "9", "passed"]


def test_floors_are_those_of_the_package():
    parser = configparser.ConfigParser()
    parser.read(matrix.ROOT / "setup.cfg")
    extras = parser["options.extras_require"]
    stated = parser["options"]["install_requires"] + "".join(
        extras[name] for name in ("tensorflow", "jax", "torch")
    )
    floors = dict(re.findall(r"^([a-z]+)>=([\d.]+)$", stated, re.M))
    assert {*floors} == {"keras", "numpy", "tensorflow", "jax", "torch"}
    installed = {}
    for environment in matrix.ENVIRONMENTS:
        if environment.name.endswith("-floor"):
            assert f">={environment.python}" in parser["options"].values()
            installed |= dict(p.split("==") for p in environment.packages)
    for name, floor in floors.items():
        version = installed.get(name) or installed[f"{name}-cpu"]
        assert f"{version}.".startswith(f"{floor}."), name


def test_every_path_exists():
    for path in (*matrix.GOLDENS, *matrix.PART):
        assert (matrix.ROOT / path).is_file(), path


def test_unknown_names(capsys):
    with pytest.raises(SystemExit):
        matrix.main(["jax-oldest"])
    assert "Received: jax-oldest." in capsys.readouterr().err
