"""All checks of the repository in one command: python tests/run_all.py.

The checks run one after another, the TensorFlow suite last, so that pytest's
count closes the output; the exit status is 1 when any of them failed. Names
of checks as arguments run those alone: python tests/run_all.py style jax

In the quick run TensorFlow compiles only where that is what is tested. With
--full the suites run what was left out, compiled.
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

# Of the tests of the examples, those that run on every backend.
EVERY_SCRIPT = "tests/examples/test_every_script.py"

# What does not depend on the backend runs once. The other tests of the examples
# do so on torch, which compiles nothing; some of the full run on TensorFlow.
EXAMPLES = [
    f"tests/examples/{path.name}"
    for path in sorted((ROOT / "tests/examples").glob("test_*.py"))
    if path.name != Path(EVERY_SCRIPT).name
]
BACKEND_FREE = [
    "tests/benchmarks",
    "tests/docs",
    "tests/reliability/test_bad_files.py",
    "tests/reliability/test_faults.py",
    "tests/test_architecture.py",
    "tests/test_packaging.py",
    "tests/test_public_names.py",
    "tests/test_reference.py",
]

# What is in it beyond the quick run is a check of its own, in the full run.
EXPORTS = "tests/test_exports.py"
ONNX = ("tf2onnx==1.17.0", "onnx", "onnxruntime")

# What the CPU kernels take a part in.
RUN_ON_KERNELS = ["ops", "layers/rnn", "test_goldens.py", "test_report.py"]
RUN_ON_KERNELS += [Path(EXPORTS).name, "reliability/test_properties.py"]

# TensorFlow keeps in memory all that XLA compiled, up to 10 GB per process: its
# full run takes new processes for each of these, and for the others.
FULL_ON_TENSORFLOW = [
    (["tests/ops", "tests/layers"], ""),
    (["tests/examples"], " and on_tensorflow"),
    (["tests/journeys"], ""),
]


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
                *pytest_arguments(),
                *(f"tests/{path}" for path in RUN_ON_KERNELS),
                KERAS_BACKEND=backend,
                PYTHONPATH=paths,
                KERNEL_CALLS=str(Path(folder, "kernel_calls.txt")),
            )
        exports("--kernels", PYTHONPATH=paths)


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


def exports(*options, **environment):
    """What exporters write, on three backends, and ONNX with its runtime.

    The tests' packages do not include the ones for ONNX.
    """
    with tempfile.TemporaryDirectory() as folder:
        python = on_top_of_this(folder, *ONNX)
        for backend in SUITES:
            print(f"==> exports on {backend}", flush=True)
            run(
                *(python, "-m", "pytest", "-q", *options, "--compiled"),
                *("-m", "full or peers", EXPORTS),
                KERAS_BACKEND=backend,
                **environment,
            )


def docs_in_a_process():
    """Builds the site beside a suite, since it takes one core; the process."""
    return subprocess.run(
        [sys.executable, __file__, "docs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def pytest_arguments(full=False, also=""):
    """Those that choose the tests of the quick run, or of the full one."""
    never = f"not slow and not accelerator and not peers{also}"
    if full:
        return ["--compiled", "-m", f"full and {never}"]
    return ["-m", f"not full and {never}"]


def ignoring(paths, full=False):
    """All tests but these."""
    paths = [*paths, *([EXPORTS] if full else [])]
    return ["tests", *(f"--ignore={path}" for path in paths)]


def suite(backend, full):
    """Tests on one backend, one process per core."""
    pytest = (sys.executable, "-m", "pytest", "-q")
    if backend == "jax":
        parts = [(ignoring([*BACKEND_FREE, *EXAMPLES], full), "")]
    elif backend == "torch" and full:
        parts = [(ignoring([*BACKEND_FREE, *EXAMPLES], full), "")]
        parts += [(EXAMPLES, " and not on_tensorflow")]
    elif backend == "torch":
        parts = [(ignoring(BACKEND_FREE), "")]
    elif full:
        apart = sum((paths for paths, _ in FULL_ON_TENSORFLOW), [])
        others = ignoring(apart, full)
        parts = [*FULL_ON_TENSORFLOW, (others, "")]
    else:
        # The docstring examples are tests too.
        parts = [([*ignoring(EXAMPLES), "keras_ln"], "")]
    failed = None
    for paths, also in parts:
        chosen = pytest_arguments(full, also)
        try:
            run(*pytest, *chosen, *paths, KERAS_BACKEND=backend)
        except subprocess.CalledProcessError as error:
            failed = error
    if failed:
        raise failed


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
        help="the site, exports, and the suites' other tests, compiled",
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
