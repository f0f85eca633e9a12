"""Tests and measurements on a GPU, in a given time.

    python -m benchmarks.on_a_gpu FOLDER
    python -m benchmarks.on_a_gpu FOLDER --minutes 9 --only tests layers

Every part is a process of its own with a limit, and a hang or a fault of the
device costs no other part. FOLDER gets the output of each part, tables
of times, and parts.csv with how the parts ended, which is printed last. A part
that lacks a package or a program is named and left out.

It needs JAX or torch for CUDA, and keras; g++ builds the library of
keras-ln-kernels if there is none. Nothing has to be installed: packages may be
on PYTHONPATH. --bundle fills FOLDER with those that such a machine may lack, at
most 64 MiB. --smoke goes through all parts on a machine without a GPU.
"""

import argparse
import contextlib
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from benchmarks import harness, report

KERNELS = harness.ROOT / "kernels"
SLOT = str(KERNELS / "tests" / "gpu_slot.py")
PACKAGE = "keras_ln_kernels"
COLUMNS = ["part", "seconds", "end", "said"]
# JAX and torch bring NumPy and ml_dtypes.
BUNDLE = ["keras", "absl-py", "rich", "markdown-it-py", "mdurl", "pygments"]
BUNDLE += ["namex", "optree", "h5py", "packaging", "typing_extensions"]
BUNDLE += ["pytest", "pytest-xdist", "execnet", "iniconfig", "pluggy"]
MOST_BYTES = 64 << 20
# Seconds that a script keeps for its end; a part with fewer is not started.
GRACE, LEAST = 10, 15


class Part(NamedTuple):
    """A command; the most seconds that it gets; packages; for --smoke."""

    name: str
    command: list[str]
    seconds: int
    needs: tuple[str, ...]
    smoke: tuple[str, ...]
    backend: str = "torch"
    environment: dict[str, str] = {}


def check(backend):
    """What users run, as they do."""
    command = [sys.executable, "-m", "keras_ln", "gpu", "--minutes", "3"]
    needs = ("keras", backend)
    return Part(f"check {backend}", command, 240, needs, ("--help",), backend)


def other(backend, folder):
    """What runs without the GPU kernels, in the same session."""
    part = layers(backend, "lstm", "float32", folder)
    at = part.command.index("--providers")
    command = [
        *part.command[:at],
        "--providers",
        "keras_ln",
        *part.command[-2:],
    ]
    # A loop in Python takes long: the last of an option counts.
    command += ["--sizes", "A", "--rounds", "1"] * (backend == "torch")
    off = {"KERAS_LN_KERNELS": "0"}
    return part._replace(
        name=f"without kernels {backend}", command=command, environment=off
    )


def tests(backend):
    """Of all recurrent layers."""
    command = [sys.executable, "-m", "pytest", "-v", "--kernels", "-n", "4"]
    command += ["-m", "accelerator", "tests/test_on_a_gpu.py"]
    needs = ("pytest", "xdist", "keras", backend)
    smoke = ("--collect-only", "-n", "0")
    # A process of JAX would take three quarters of the memory.
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    name = f"tests {backend}"
    return Part(name, command, 240, needs, smoke, backend, shared)


def layers(backend, layer, dtype, folder):
    """A training step and inference, beside cuDNN's."""
    command = [sys.executable, "-m", "benchmarks.sequence_layers"]
    command += ["--layer", layer, "--dtype", dtype, "--sizes", "A", "B", "C"]
    command += ["--return-sequences", "--rounds", "5"]
    # On torch the other ways of each layer are loops in Python.
    ours = "keras_ln (kernels)" if backend == "torch" else "keras_ln"
    plain = layer.upper()
    command += ["--providers", ours, f"keras {plain},", f"torch {plain}"]
    command += ["--output", str(folder / f"layers_{backend}.csv")]
    name = f"layers {backend} {layer} {dtype}"
    return Part(name, command, 120, ("keras", backend), ("--smoke",), backend)


def kernels():
    """The cases of the emulated kernels, without a framework's layers."""
    command = [sys.executable, SLOT]
    return Part("kernels", command, 120, ("torch",), ("--dry",))


def sanitizer(tool):
    """The cases of the emulated kernels, watched by the toolkit's program."""
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1"]
    command += ["--target-processes", "all", sys.executable, SLOT]
    # Within torch's blocks of memory nothing is beyond an array's end.
    return Part(
        *(f"sanitizer {tool}", command, 180, ("torch",), ("--dry",)),
        environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    )


def parts(folder):
    """All of them, the most telling first."""
    found = [check("torch"), check("jax")]
    found += [kernels(), tests("torch"), tests("jax")]
    for way in (
        lambda b: layers(b, "lstm", "float32", folder),
        lambda b: other(b, folder),
    ):
        found += [way("torch"), way("jax")]
    found += [sanitizer("memcheck"), sanitizer("racecheck")]
    for layer, dtype in (
        *(("gru", "float32"), ("lstm", "bfloat16"), ("gru", "bfloat16")),
        ("lstm", "float16"),
    ):
        found += [layers(b, layer, dtype, folder) for b in ("torch", "jax")]
    return found


def missing(part, smoke):
    """The name of a missing package or program, or None."""
    programs = [part.command[0]] + ["nvidia-smi"] * (not smoke)
    for name in programs:
        if shutil.which(name) is None:
            return name
    for name in part.needs:
        if importlib.util.find_spec(name) is None:
            return name
    return None


def run(part, folder, seconds, smoke):
    """How the part ends, and the last line that it prints."""
    own = folder / part.name.replace(" ", "-")
    own.mkdir(exist_ok=True)
    path = [KERNELS, harness.ROOT, *filter(None, [os.getenv("PYTHONPATH")])]
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "KERAS_BACKEND": part.backend,
        "KERAS_LN_KERNELS": "cuda",
        # Each image is compiled once.
        "KERAS_LN_KERNELS_CACHE": str(folder / "images"),
        "OUT": str(own),
    }
    log = own / "output.txt"
    with log.open("w") as file:
        child = subprocess.Popen(
            part.command + [*part.smoke] * smoke,
            env=os.environ | environment | part.environment,
            cwd=harness.ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            # To end with all that it has started.
            start_new_session=True,
        )
        try:
            end = f"exit status {child.wait(seconds)}"
        except subprocess.TimeoutExpired:
            end = f"stopped after {seconds:.0f} s"
            # As by Ctrl-C: pytest lists the failures so far.
            os.killpg(child.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    lines = log.read_text(errors="replace").splitlines()
    return end, next(filter(str.strip, reversed(lines)), "")


def software():
    """The driver, NVRTC and commit, for the tables."""

    def said(*command):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            done = subprocess.run(
                command,
                cwd=harness.ROOT,
                capture_output=True,
                text=True,
                check=True,
            )
            return done.stdout.split("\n")[0].strip()
        return "unknown"

    query = ["--query-gpu=name,driver_version", "--format=csv,noheader"]
    program = "; ".join(
        (
            f"import sys; sys.path.insert(0, {str(KERNELS)!r})",
            "from keras_ln_kernels import nvrtc",
            "print(*nvrtc.compiler(13)[0].version, sep='.')",
        )
    )
    commit = said("git", "rev-parse", "HEAD")
    return (
        f"{said('nvidia-smi', *query)}, NVRTC "
        f"{said(sys.executable, '-c', program)}, commit {commit}"
    )


def bundle(folder):
    """Packages for PYTHONPATH, and the library."""
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet"]
    command += ["--no-compile", "--target", str(folder), *BUNDLE]
    subprocess.run(command, check=True)
    shutil.copy(library(folder), folder)
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    if size > MOST_BYTES:
        sys.exit(f"{folder} has {size >> 20} MiB: at most 64 are carried.")


def library(folder):
    """The kernels' library: named, of the checkout, installed, or new."""
    name = f"lib{PACKAGE}.so"
    installed = importlib.util.find_spec(PACKAGE)
    found = [KERNELS / PACKAGE / name, folder / name]
    if installed is not None:
        found.insert(1, pathlib.Path(installed.origin).with_name(name))
    named = os.getenv("KERAS_LN_KERNELS_LIBRARY")
    path = named or next(filter(pathlib.Path.exists, found), None)
    if path is None:
        path = found[-1]
        program = "import sys, build_library, pathlib as p;"
        program += "build_library.build(p.Path(sys.argv[1]), compiler='g++')"
        command = [sys.executable, "-c", program, str(folder)]
        subprocess.run(command, cwd=KERNELS, check=True)
    return str(path)


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.on_a_gpu",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("folder", type=pathlib.Path, help="the folder to fill")
    parser.add_argument(
        "--minutes",
        type=float,
        default=30,
        help="time for all parts (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="only parts whose names begin so, such as tests or 'layers jax'",
    )
    parser.add_argument(
        "--bundle", action="store_true", help="fill the folder with packages"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="a short run without a GPU"
    )
    return parser.parse_args(argv)


def main(argv=None):
    """Runs the parts, prints how they ended."""
    options = parse(argv)
    # The running part ends with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = options.folder.resolve()
    if options.bundle:
        bundle(folder)
        return
    chosen = [
        part
        for part in parts(folder)
        if part.name.startswith(tuple(options.only))
    ]
    if not chosen:
        names = ", ".join(part.name for part in parts(folder))
        sys.exit(f"--only must match any of: {names}")
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["KERAS_LN_KERNELS_LIBRARY"] = library(folder)
    # Ends the column of versions of all tables.
    os.environ[harness.SOFTWARE] = software()
    print(os.environ[harness.SOFTWARE])
    end, rows = time.monotonic() + 60 * options.minutes, []
    for part in chosen:
        start = time.monotonic()
        left = end - start
        # A smoke run compiles the emulation, and no limit is for it.
        seconds = left if options.smoke else min(part.seconds, left)
        lacks = missing(part, options.smoke)
        if lacks:
            ended, said = f"left out: there is no {lacks}", ""
        elif seconds < LEAST:
            ended, said = "left out: no time", ""
        else:
            print(f"{part.name}: at most {seconds:.0f} s", flush=True)
            ended, said = run(part, folder, seconds, options.smoke)
        took = f"{time.monotonic() - start:.0f}"
        row = (part.name, took, ended, said)
        rows.append(dict(zip(COLUMNS, row, strict=True)))
        rows[-1]["software"] = os.environ[harness.SOFTWARE]
        report.write_csv(rows, folder / "parts.csv")
    for row in rows:
        print("  ".join(row[name] for name in COLUMNS).rstrip()[:120])
    fine = ("exit status 0", "left out")
    sys.exit(any(not row["end"].startswith(fine) for row in rows))


if __name__ == "__main__":
    main()
