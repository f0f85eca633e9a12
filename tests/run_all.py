"""All checks of the repository in one command: python tests/run_all.py.

The suites run one after another, TensorFlow last, so that pytest's count closes
the output, and the other checks beside them; the exit status is 1 when any of
them failed. Names of checks as arguments run those alone: python
tests/run_all.py style jax

Every test runs on torch; `pytest_arguments` has the rule of what else runs on
TensorFlow and JAX. With --full the suites run what takes long, marked `full`.
"""

import argparse
import concurrent.futures
import configparser
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORT = ROOT / "tests" / "support"

EXPORTS = "tests/exports/test_exports.py"
ONNX = ("tf2onnx==1.17.0", "onnx", "onnxruntime")

# What the CPU kernels take a part in.
RUN_ON_KERNELS = (
    *("kernels", "contract/test_report.py", "engine/test_padding.py"),
    *("engine/test_transformations.py", "engine/test_forward_mode.py"),
    "conformance/test_second_derivatives.py",
)


def run(*command, cwd=ROOT, **environment):
    """Run a command and fail when it fails."""
    subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        check=True,
    )


def style():
    """Ruff's rules and ruff's format, and the numbers of the pages."""
    run(sys.executable, "-m", "ruff", "check", ".")
    run(sys.executable, "-m", "ruff", "format", "--check", ".")
    run(sys.executable, "docs/tables.py", "--check")


def types():
    """Mypy on the package."""
    run(sys.executable, "-m", "mypy")


def wheel():
    """Build the wheel; install and import it where JAX is the one framework."""
    run(sys.executable, "tests/support/built_wheel.py")


def kernels_wheel(python, folder):
    """The wheel of the CPU kernels in a folder, built unless it is there."""
    if not (found := [*folder.glob("*.whl")]):
        # A copy, since setuptools builds in the folder of the sources.
        source = folder / "source"
        shutil.copytree(ROOT / "kernels", source)
        run(python, "-m", "pip", "wheel", "-qw", folder, "--no-deps", source)
        found = [*folder.glob("*.whl")]
    return found[0]


def library():
    """Build the CPU kernels and test them, where there is no framework."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "bin", "python")
        venv.create(folder, with_pip=True)
        built = kernels_wheel(python, Path(os.environ.get("WHEELS", folder)))
        run(python, "-m", "pip", "install", "-q", f"{built}[test]")
        # Beside it lies its digest.
        (shared,) = (
            *Path(folder).glob("lib/*/site-packages/keras_ln_kernels/*.so"),
            *Path(folder).glob("lib/*/site-packages/keras_ln_kernels/*.dylib"),
        )
        run(
            *(python, "-m", "pytest", "-q"),
            cwd=ROOT / "kernels",
            OMP_NUM_THREADS="1",
            KERAS_LN_KERNELS_LIBRARY=str(shared),
        )


def kernels():
    """Tests of the CPU kernels, and those that they run too.

    They are installed into a temporary folder, not into this environment. Some
    tests are marked `full`.
    """
    with tempfile.TemporaryDirectory() as folder:
        built = kernels_wheel(
            sys.executable, Path(os.environ.get("WHEELS", folder))
        )
        installed = Path(folder, "installed")
        pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps")
        run(*pip, "--target", installed, built)
        paths = os.pathsep.join(map(str, (ROOT, SUPPORT, installed)))
        pytest = (sys.executable, "-m", "pytest", "-q")
        for backend in SUITES:
            print(f"==> kernels on {backend}", flush=True)
            run(
                *(*pytest, "--kernels"),
                *pytest_arguments(backend, ""),
                *(f"tests/{path}" for path in RUN_ON_KERNELS),
                KERAS_BACKEND=backend,
                PYTHONPATH=paths,
            )


def on_top_of_this(folder, *packages):
    """A new environment that sees this one's packages; returns its Python."""
    venv.create(folder, clear=True)
    python = Path(folder, "bin", "python")
    paths = {"base": folder, "platbase": folder}
    site_packages = Path(sysconfig.get_path("purelib", vars=paths))
    here = sysconfig.get_path("purelib")
    (site_packages / "tests.pth").write_text(
        f"import site; site.addsitedir({here!r})\n"
    )
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "-q", *packages)
    return python


def docs():
    """Build the site, where needed in an environment with what that takes.

    Its packages are not among those of the tests. It sees the others of this
    environment.
    """
    command = (ROOT / "docs" / "build.py",)
    if importlib.util.find_spec("furo"):
        run(sys.executable, *command)
        return
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    needed = settings["options.extras_require"]["docs"].split()
    with tempfile.TemporaryDirectory() as folder:
        python = on_top_of_this(folder, *needed)
        run(python, *command, Path(folder, "site"))


def onnx():
    """What TensorFlow exports as ONNX, with its runtime.

    The tests' packages do not include the ones for ONNX.
    """
    with tempfile.TemporaryDirectory() as folder:
        python = on_top_of_this(folder, *ONNX)
        run(
            *(python, "-m", "pytest", "-q", "-m", "peers", EXPORTS),
            KERAS_BACKEND="tensorflow",
        )


def in_a_process(checks):
    """Run checks beside the suites; the process and its output."""
    return subprocess.run(
        [sys.executable, __file__, *checks],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def pytest_arguments(backend, duration="not full"):
    """The arguments that choose a backend's tests: the rule of what runs where.

    torch, which compiles nothing, runs every test; TensorFlow and JAX run what
    is marked `every_backend`, of which --every-backend leaves all but
    `QUICK_EVERYWHERE` to the full run. The duration is "full", "not full" or,
    for both, empty.
    """
    where = {
        "torch": "",
        "tensorflow": "(every_backend or on_tensorflow)",
        "jax": "every_backend",
    }[backend]
    by_hand = "not slow and not accelerator and not peers"
    marks = ["-m", " and ".join(filter(None, [duration, where, by_hand]))]
    return [*marks, "--every-backend"] if where else marks


def suite(backend, full):
    """Tests on one backend, one process per core."""
    paths = ["tests"]
    if backend == "torch" and not full:
        # The docstring examples are quick tests of torch.
        paths.append("keras_ln")
    run(
        *(sys.executable, "-m", "pytest", "-q", "--durations=8"),
        *(*pytest_arguments(backend, "full" if full else "not full"), *paths),
        KERAS_BACKEND=backend,
    )


# These keep one core busy each and run beside the suites.
BESIDE = {
    "style": style,
    "types": types,
    "wheel": wheel,
    "docs": docs,
    "onnx": onnx,
}
SUITES = ("jax", "torch", "tensorflow")
QUICK = ("style", "types", "wheel", *SUITES)
# These also download more, or take a compiler or what the site is built with.
FULL = ("docs", "onnx", "kernels", *SUITES)
# Needs Python alone: .ci/run starts it beside the installation.
KNOWN = tuple(dict.fromkeys(("library", *QUICK, *FULL)))


def passes(name, full):
    """Run a check; whether it passed."""
    try:
        if name in SUITES:
            suite(name, full)
        else:
            (BESIDE | {"library": library, "kernels": kernels})[name]()
    except subprocess.CalledProcessError as error:
        print(f"==> {name} failed: {error}", flush=True)
        return False
    return True


def main(argv=None):
    """Run the checks and report; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "checks",
        nargs="*",
        metavar="CHECK",
        help=f"any of {', '.join(KNOWN)}; by default {', '.join(QUICK)}, and "
        f"with --full {', '.join(FULL)}",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="the site, ONNX, the CPU kernels, and what takes long",
    )
    args = parser.parse_args(argv)
    chosen = args.checks or (FULL if args.full else QUICK)
    if unknown := set(chosen) - set(KNOWN):
        parser.error(
            f"expected any of {', '.join(KNOWN)}. Received: "
            f"{', '.join(sorted(unknown))}."
        )
    beside = [name for name in chosen if name in BESIDE]
    suites = [name for name in chosen if name not in BESIDE]
    failed, process = [], None
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        if beside and suites:
            process = pool.submit(in_a_process, beside)
        for name in suites or beside:
            if process and name == suites[-1]:
                # Before this suite, so that pytest's count is the last line.
                ended = process.result()
                print(ended.stdout, flush=True)
                failed += [", ".join(beside)] * bool(ended.returncode)
            # The time stands in the header.
            seconds = time.monotonic() - start
            print(f"==> {name} (at {seconds:.0f} s)", flush=True)
            if not passes(name, args.full):
                failed.append(name)
    if failed:
        print(f"==> Failed: {', '.join(failed)}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
