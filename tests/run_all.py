"""All checks of the repository in one command: python tests/run_all.py.

The checks run one after another, the TensorFlow suite last, so that pytest's
count closes the output; the exit status is 1 when any of them failed. Names
of checks as arguments run those alone: python tests/run_all.py style jax

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

# What is in it beyond the quick run is a check of its own, in the full run.
EXPORTS = "tests/test_exports.py"
ONNX = ("tf2onnx==1.17.0", "onnx", "onnxruntime")

# What the CPU kernels take a part in.
RUN_ON_KERNELS = ["ops", "layers/rnn", "test_goldens.py", "test_report.py"]
RUN_ON_KERNELS += [Path(EXPORTS).name, "reliability/test_properties.py"]


def run(*command, cwd=ROOT, **environment):
    """Run a command and fail when it fails."""
    subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        check=True,
    )


def style():
    """Ruff's rules and ruff's format."""
    run(sys.executable, "-m", "ruff", "check", ".")
    run(sys.executable, "-m", "ruff", "format", "--check", ".")


def types():
    """Mypy on the package."""
    run(sys.executable, "-m", "mypy")


def wheel():
    """Build the wheel; install and import it where JAX is the one framework."""
    run(sys.executable, "tests/built_wheel.py")


def kernels():
    """Build the CPU kernels, test them, and repeat with them what they run.

    They are installed into a temporary folder, not into this environment.
    torch comes first: it tells which tests call them.
    """
    with tempfile.TemporaryDirectory() as folder:
        # A copy, since setuptools builds in the folder of the sources.
        source, installed = Path(folder, "source"), Path(folder, "installed")
        shutil.copytree(ROOT / "kernels", source)
        pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps")
        run(*pip, "--target", installed, source)
        paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests", installed)))
        pytest = (sys.executable, "-m", "pytest", "-q")
        package = installed / "keras_ln_kernels"
        (library,) = package.glob("libkeras_ln_kernels.*")
        run(
            *pytest,
            cwd=ROOT / "kernels",
            OMP_NUM_THREADS="1",
            KERAS_LN_KERNELS_LIBRARY=str(library),
        )
        for backend in sorted(SUITES, key=lambda name: name != "torch"):
            print(f"==> kernels on {backend}", flush=True)
            run(
                *(*pytest, "--kernels", "-p", "kernel_calls"),
                *pytest_arguments(backend),
                *(f"tests/{path}" for path in RUN_ON_KERNELS),
                KERAS_BACKEND=backend,
                PYTHONPATH=paths,
                KERNEL_CALLS=str(Path(folder, "kernel_calls.txt")),
            )
            run(
                *(*pytest, "--kernels", "-m", "full and not peers", EXPORTS),
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


def exports():
    """What exporters write, on three backends, and ONNX with its runtime.

    The tests' packages do not include the ones for ONNX.
    """
    with tempfile.TemporaryDirectory() as folder:
        python = on_top_of_this(folder, *ONNX)
        for backend in SUITES:
            print(f"==> exports on {backend}", flush=True)
            run(
                *(python, "-m", "pytest", "-q", "--durations=8"),
                *("-m", "full or peers", EXPORTS),
                KERAS_BACKEND=backend,
            )


def docs_in_a_process():
    """Builds the site beside a suite, since it takes one core; the process."""
    return subprocess.run(
        [sys.executable, __file__, "docs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def pytest_arguments(backend, full=False):
    """The arguments that choose a backend's tests: the rule of what runs where.

    torch, which compiles nothing, runs every test; TensorFlow and JAX run what
    is marked `every_backend`.
    """
    where = {
        "torch": "",
        "tensorflow": " and (every_backend or on_tensorflow)",
        "jax": " and every_backend",
    }[backend]
    chosen = f"{'full' if full else 'not full'}{where}"
    return ["-m", f"{chosen} and not slow and not accelerator and not peers"]


def suite(backend, full):
    """Tests on one backend, one process per core."""
    # The docstring examples are tests too.
    paths = ["tests", *([f"--ignore={EXPORTS}"] if full else ["keras_ln"])]
    run(
        *(sys.executable, "-m", "pytest", "-q", "--durations=8"),
        *(*pytest_arguments(backend, full), *paths),
        KERAS_BACKEND=backend,
    )


# By hand: they download more, a compiler and what the site is built with. The
# kernels are in .ci/run too, and the other two in the full run.
MORE_CHECKS = {"kernels": kernels, "docs": docs, "exports": exports}
CHECKS = {"style": style, "types": types, "wheel": wheel}
SUITES = ("jax", "torch", "tensorflow")


def passes(name, full):
    """Run a check; whether it passed."""
    try:
        if name in SUITES:
            suite(name, full)
        else:
            (CHECKS | MORE_CHECKS)[name]()
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
        help=f"any of {', '.join((*CHECKS, *MORE_CHECKS, *SUITES))}; all but "
        f"{', '.join(MORE_CHECKS)} by default, and with --full "
        f"docs, exports, {', '.join(SUITES)}",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="the site, exports, and what takes long",
    )
    args = parser.parse_args(argv)
    names = [*CHECKS, *SUITES]
    if args.full:
        names = ["docs", "exports", *SUITES]
    chosen = args.checks or names
    known = names if args.full else [*names, *MORE_CHECKS]
    if unknown := set(chosen) - set(known):
        parser.error(
            f"expected any of {', '.join(known)}. Received: "
            f"{', '.join(sorted(unknown))}."
        )
    failed, site = [], None
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for name in chosen:
            if name == "docs" and name != chosen[-1]:
                site = pool.submit(docs_in_a_process)
                continue
            # The time stands in the header, as pytest's count is the last line.
            seconds = time.monotonic() - start
            print(f"==> {name} (at {seconds:.0f} s)", flush=True)
            if not passes(name, args.full):
                failed.append(name)
            if site:
                process, site = site.result(), None
                print("==> docs", process.stdout, sep="\n", flush=True)
                if process.returncode:
                    failed.append("docs")
    if failed:
        print(f"==> Failed: {', '.join(failed)}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
