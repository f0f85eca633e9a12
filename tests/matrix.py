"""Old and new versions, each in an environment: python tests/matrix.py.

With `uv` it makes the environments below, runs the goldens in each and, where
those pass, a part of the suite, prints a table and writes its rows to
tests/measured/matrix.csv, where they replace the last ones of the same names.
Names as arguments run those environments alone. What is blocking and fails
makes the exit status 1; an interpreter that is not found does not.
"""

import argparse
import csv
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "measured" / "matrix.csv"

GOLDENS = ("tests/test_goldens.py",)
# What meets most of Keras and of the frameworks in a minute.
PART = (
    "tests/test_versions.py",
    "tests/backend/test_contract.py",
    "tests/ops/test_symbolic.py",
    "tests/layers/rnn/test_equals_keras.py",
    "tests/layers/rnn/test_zoneout_by_itself.py",
    "tests/layers/normalization/test_weight_normalization_use.py",
    "tests/layers/test_conversion_of_parts.py",
    "tests/test_conformance.py",
    "tests/test_mixed_precision.py",
)
TOOLS = ("hypothesis", "pytest", "pytest-xdist", "scipy")
COLUMNS = (
    *("name", "python", "keras", "framework", "numpy", "goldens", "part"),
)


@dataclasses.dataclass(frozen=True)
class Environment:
    """What is installed, and whether its failure counts."""

    name: str
    python: str
    packages: tuple[str, ...]
    blocking: bool = True

    @property
    def backend(self) -> str:
        """The backend of Keras, with which the name begins."""
        return self.name.partition("-")[0]


# The floors are those of setup.cfg. TensorFlow's CPU builds are smaller.
FLOOR = ("keras==3.8.0", "numpy==1.26.0")
ENVIRONMENTS = (
    Environment("tensorflow-floor", "3.10", (*FLOOR, "tensorflow-cpu==2.17.0")),
    Environment(
        "tensorflow-middle", "3.12", ("keras==3.12.0", "tensorflow-cpu==2.19.0")
    ),
    Environment("tensorflow-newest", "3.13", ("keras", "tensorflow-cpu")),
    Environment("jax-floor", "3.10", (*FLOOR, "jax==0.4.38")),
    Environment("jax-newest", "3.13", ("keras", "jax")),
    Environment("torch-floor", "3.10", (*FLOOR, "torch==2.3.0")),
    Environment("torch-newest", "3.13", ("keras", "torch")),
    Environment("jax-nightly", "3.12", ("keras-nightly", "jax"), False),
)


def find_python(version: str) -> str | None:
    """An interpreter of that minor version, or None."""
    found = subprocess.run(
        ["uv", "python", "find", "--no-python-downloads", version],
        capture_output=True,
        text=True,
    )
    if found.returncode == 0:
        return found.stdout.strip()
    # uv sees those of pyenv only where they are switched on.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    inside = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    return str(inside[-1]) if inside else None


def install(
    environment: Environment, folder: Path, torch_from_pypi: bool
) -> str | None:
    """Makes the environment; returns what went wrong, or None."""
    if (folder / "complete").exists():
        return None
    interpreter = find_python(environment.python)
    if interpreter is None:
        return "no interpreter"
    python = folder / "bin" / "python"
    made = ["uv", "venv", "-q", "--clear", "--python", interpreter, folder]
    options = ["--prerelease", "allow"] if not environment.blocking else []
    if environment.backend == "torch" and not torch_from_pypi:
        options += ["--torch-backend", "cpu"]
    filled = [
        *("uv", "pip", "install", "-q", "--python", python, *options),
        *(*environment.packages, *TOOLS),
    ]
    for command in (made, filled):
        if subprocess.run(list(map(str, command))).returncode:
            return "not installed"
    (folder / "complete").touch()
    return None


def versions(python: Path) -> dict[str, str]:
    """Versions of all packages of an environment."""
    listed = subprocess.run(
        ["uv", "pip", "freeze", "-q", "--python", str(python)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = (line.split("==") for line in listed.stdout.splitlines())
    return {name: version for name, version in lines}


def pytest_result(output: str) -> str:
    """ "2 failed, 24 passed" of what pytest wrote, or that it did not end."""
    # Libraries may write more at exit, after pytest's last line.
    lines = re.findall(
        r"^\d+ (?:failed|passed|error).* in .*s\b.*$", output, re.M
    )
    last = lines[-1] if lines else ""
    counts = re.findall(r"(\d+) (failed|passed|errors?)\b", last)
    return ", ".join(f"{n} {what}" for n, what in counts) or "did not end"


def test(
    environment: Environment, python: Path, paths: Iterable[str], limit: float
) -> str:
    """What pytest says of the paths; a failure is printed in full."""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths]
    try:
        done = subprocess.run(
            list(map(str, command)),
            cwd=ROOT,
            env=os.environ | {"KERAS_BACKEND": environment.backend},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return f"longer than {limit:g} s"
    result = pytest_result(done.stdout)
    if done.returncode:
        print(f"==> {environment.name}\n{done.stdout}", flush=True)
        result += f", exit status {done.returncode}"
    return result


def passed(result: str) -> bool:
    """Whether a cell of the table says that all went well."""
    return re.fullmatch(r"\d+ passed", result) is not None


def row_of(
    environment: Environment, folder: Path, args: argparse.Namespace
) -> dict[str, str]:
    """The environment's row of the table."""
    row = dict.fromkeys(COLUMNS, "")
    row |= {"name": environment.name, "python": environment.python}
    trouble = install(environment, folder, args.torch_from_pypi)
    if trouble:
        return row | {"goldens": trouble}
    python = folder / "bin" / "python"
    found = versions(python)
    framework = next(
        name
        for name in (environment.backend, f"{environment.backend}-cpu")
        if name in found
    )
    row |= {
        "keras": found.get("keras") or found["keras-nightly"],
        "framework": f"{environment.backend} {found[framework]}",
        "numpy": found["numpy"],
        "goldens": test(environment, python, GOLDENS, args.limit),
    }
    if passed(row["goldens"]) and not args.goldens:
        row["part"] = test(environment, python, PART, args.limit)
    return row


def failures(rows: Iterable[dict[str, str]]) -> list[str]:
    """Names of blocking environments that did not pass."""
    blocking = {e.name for e in ENVIRONMENTS if e.blocking}
    return [
        row["name"]
        for row in rows
        if row["name"] in blocking
        and row["goldens"] != "no interpreter"
        and not (
            passed(row["goldens"]) and passed(row["part"] or row["goldens"])
        )
    ]


def merged(
    old: Iterable[dict[str, str]], new: Iterable[dict[str, str]]
) -> list[dict[str, str]]:
    """The rows in the order of the environments, new ones before old."""
    rows = {row["name"]: row for row in (*old, *new)}
    return [rows[e.name] for e in ENVIRONMENTS if e.name in rows]


def shown(rows: Sequence[dict[str, str]]) -> str:
    """The rows as a table of text."""
    lines = [COLUMNS, *([row[c] for c in COLUMNS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(map(str.ljust, line, widths)).rstrip() for line in lines
    )


def write(rows: Iterable[dict[str, str]], path: Path) -> None:
    """Writes the rows over those of the same names."""
    old = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            old = list(csv.DictReader(file))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(merged(old, rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the environments; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [e.name for e in ENVIRONMENTS]
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"any of {', '.join(names)}; all by default",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="where environments stay for the next run; by default they go",
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="environments at once (default: 2)"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=400,
        metavar="SECONDS",
        help="for the goldens and for the part (default: 400)",
    )
    parser.add_argument(
        "--goldens", action="store_true", help="run these alone"
    )
    parser.add_argument(
        "--torch-from-pypi",
        action="store_true",
        help="with gigabytes of CUDA libraries, where PyTorch's own index of "
        "CPU builds cannot be reached",
    )
    args = parser.parse_args(argv)
    if unknown := set(args.names) - {*names}:
        parser.error(
            f"expected any of {', '.join(names)}. Received: "
            f"{', '.join(sorted(unknown))}."
        )
    chosen = [e for e in ENVIRONMENTS if e.name in (args.names or names)]
    with (
        tempfile.TemporaryDirectory() as temporary,
        ThreadPoolExecutor(args.jobs) as pool,
    ):
        base = (args.folder or Path(temporary)).resolve()
        rows = []
        # Written as they come: a run that is stopped keeps what it has.
        for row in pool.map(lambda e: row_of(e, base / e.name, args), chosen):
            rows.append(row)
            write([row], TABLE)
    print(shown(rows))
    failed = failures(rows)
    if failed:
        print(f"Failed: {', '.join(failed)}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
