"""Compiles the shared library from src/: `python build_library.py`.

Without --compiler the compiler is the Clang that the package `ziglang` of the
Python package index carries, which compiles for every platform of TARGETS on
every other; elsewhere it is the system's. The build backend calls `build`, too.
"""

import argparse
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "src"
PACKAGE = HERE / "keras_ln_kernels"

# What every file is compiled with.
FLAGS = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-Wall",
    "-Wextra",
    # Vectors are passed between inlined functions only.
    "-Wno-psabi",
    # a * b + c is one instruction, with one rounding, wherever it stands.
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    # The C++ library is not linked: the language alone is used.
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
]
COMMON_SOURCES = (
    *("api.cc", "cpu.cc", "parallel.cc", "scratch.cc"),
    *("partition.cc", "gpu.cc"),
)
# Compiled where the header of XLA's foreign function interface is at hand.
XLA_SOURCES = ("xla/handlers.cc", "xla/on_gpu.cc")
# Compiled once for each instruction set of the machine, and for any CPU. What
# it is compiled for must be what cpu.cc asks the CPU for.
KERNELS_SOURCE = "kernels.cc"
_AVX2 = ("avx2", "fma")
_AVX512 = ("avx512f", "avx512vl", "avx512dq", "avx512bw")
INSTRUCTION_SETS = {"x86_64": {"avx512": _AVX2 + _AVX512, "avx2": _AVX2}}
SANITIZERS = {
    "address": [
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ],
    "thread": ["-fsanitize=thread"],
}


class Target(NamedTuple):
    """A platform that the library is built for."""

    machine: str
    triple: str  # zig's name of it, with the oldest C library that serves
    wheel: str  # the platform tag of wheels
    suffix: str = ".so"


TARGETS = {
    "linux-x86_64": Target(
        "x86_64", "x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64"
    ),
    "linux-aarch64": Target(
        "aarch64", "aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64"
    ),
    "musl-x86_64": Target(
        "x86_64", "x86_64-linux-musl", "musllinux_1_2_x86_64"
    ),
    "musl-aarch64": Target(
        "aarch64", "aarch64-linux-musl", "musllinux_1_2_aarch64"
    ),
    "macos-arm64": Target(
        "aarch64", "aarch64-macos.11.0", "macosx_11_0_arm64", ".dylib"
    ),
    "macos-x86_64": Target(
        "x86_64", "x86_64-macos.11.0", "macosx_11_0_x86_64", ".dylib"
    ),
}
# Before 0.16 it does not compile what AVX-512 needs.
ZIG = "ziglang>=0.16,<0.18"
# By the minor version of Python, the oldest jaxlib that has a wheel, and the
# header of XLA's foreign function interface as the handlers need it.
JAXLIB = dict.fromkeys((10, 11, 12, 13), "0.6.2") | {14: "0.7.1", 15: "0.11.1"}
JAXLIB_ON = ("linux-x86_64", "linux-aarch64", "macos-arm64")
# The GNU C library of its wheels, from Python 3.14 on.
JAXLIB_LIBC = (2, 27)


def this_platform():
    """The name of the platform that the build runs on."""
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if sys.platform == "darwin":
        return f"macos-{'arm64' if machine == 'aarch64' else machine}"
    libc = "linux" if platform.libc_ver()[0] == "glibc" else "musl"
    return f"{libc if sys.platform == 'linux' else sys.platform}-{machine}"


def requirements(here=None, python=None, libc=None):
    """What the build needs from the Python package index, beside setuptools.

    The library has no handlers of XLA where jaxlib has no wheel.

    Args:
        here: the platform that the build runs on; None for this one.
        python: the minor version of its Python 3; None for this one's.
        libc: the version of its GNU C library; None for this one's.
    """
    here, python = here or this_platform(), python or sys.version_info.minor
    target = os.environ.get("KERAS_LN_KERNELS_TARGET") or here
    asked = os.environ.get("KERAS_LN_KERNELS_COMPILER")
    needed = [ZIG] if target in TARGETS and not asked else []
    version = platform.libc_ver()[1] if libc is None else libc
    old = [int(n) for n in version.split(".") if n] < list(JAXLIB_LIBC)
    if (
        here in JAXLIB_ON
        and python in JAXLIB
        and platform.python_implementation() == "CPython"
        and not (here.startswith("linux") and python >= 14 and old)
    ):
        needed.append(f"jaxlib=={JAXLIB[python]}")
    return needed


def target_of(name=None, compiler=None):
    """The platform of that name, or the one that is asked for, or this one."""
    name = name or os.environ.get("KERAS_LN_KERNELS_TARGET") or this_platform()
    if name in TARGETS:
        return TARGETS[name]
    system, _, machine = name.partition("-")
    suffix = {"linux": ".so", "musl": ".so", "macos": ".dylib"}.get(system)
    if not suffix or not (compiler or own_compiler(name)):
        raise SystemExit(
            f"keras-ln-kernels has no library for {name}. There are: "
            f"{', '.join(TARGETS)}; and what the system's compiler makes on "
            "Linux and macOS, or KERAS_LN_KERNELS_COMPILER=g++ anywhere else."
        )
    return Target(machine, "", f"linux_{machine}", suffix)


def digest_of(library):
    """The path of its digest, by which a damaged library is recognised."""
    return library.with_name(f"{library.name}.sha256")


def own_compiler(name=None):
    """The compiler that is asked for in place of zig, or None.

    Zig does not serve every platform: the system's compiler makes the others.
    """
    name = name or os.environ.get("KERAS_LN_KERNELS_TARGET") or this_platform()
    default = name == this_platform() and name not in TARGETS
    asked = os.environ.get("KERAS_LN_KERNELS_COMPILER")
    return asked or ("c++" if default else None)


def xla_headers():
    """The folder with XLA's headers, which jaxlib carries; or None."""
    jaxlib = importlib.util.find_spec("jaxlib")
    if jaxlib is None:
        return None
    return Path(jaxlib.submodule_search_locations[0], "include")


def build(folder, name=None, compiler=None, sanitizer=None):
    """Compiles the library for the platform `name` into `folder`.

    Its digest is written beside it, as `sha256sum` would.

    Args:
        folder: where to.
        name: one of TARGETS; None for the one that is asked for, or this one.
        compiler: of the system, such as g++; None for the environment's
            KERAS_LN_KERNELS_COMPILER, or zig.
        sanitizer: "address" finds wrong accesses to memory at run time,
            "thread" finds data races; None for neither.

    Returns:
        The path of the library.
    """
    target = target_of(name, compiler := compiler or own_compiler(name))
    if compiler and shutil.which(compiler) is None:
        raise SystemExit(
            "--compiler or KERAS_LN_KERNELS_COMPILER: expected a C++ compiler, "
            f"such as g++. Received: {compiler!r}, which is not installed."
        )
    if not compiler and importlib.util.find_spec("ziglang") is None:
        raise SystemExit(
            "The package ziglang is not installed: pip install ziglang, or "
            "name the system's compiler with --compiler."
        )
    checks = ["-O1", "-g1", *SANITIZERS[sanitizer]] if sanitizer else []
    flags = FLAGS + checks
    if compiler:
        command, linking = [compiler], ["-Wl,--as-needed"]
        if target.suffix != ".so":
            linking = []
    else:
        command = [sys.executable, "-m", "ziglang", "c++"]
        command += ["-target", target.triple]
        linking = ["-nostdlib++", "-s"]
    headers = xla_headers()
    library = Path(folder, f"libkeras_ln_kernels{target.suffix}")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as objects:

        def compiled(source, name=None, features=()):
            to = Path(objects, f"{Path(source).stem}{name}.o")
            chosen = _machine_flags(target, features, bool(compiler))
            if name:
                chosen += [f"-DKLN_SET={name}_kernels"]
            if source in XLA_SOURCES:
                chosen += ["-isystem", headers]
            _run(*command, *flags, *chosen, "-c", SOURCE / source, "-o", to)
            return to

        # The longest first.
        sets = INSTRUCTION_SETS.get(target.machine, {}) | {"generic": ()}
        jobs = [(KERNELS_SOURCE, *one) for one in sets.items()]
        jobs += [(source,) for source in COMMON_SOURCES]
        if headers is None:
            print("jaxlib is not installed: built without calls from XLA.")
        else:
            jobs += [(source,) for source in XLA_SOURCES]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            files = list(pool.map(lambda job: compiled(*job), jobs))
        linking += checks
        # Written beside and moved: a process may have the old one in use.
        fresh = library.with_name(f"{library.name}.{os.getpid()}")
        _run(*command, "-shared", *files, *linking, "-lpthread", "-o", fresh)
        digest = write_digest(fresh, library.name)
        # A process that starts in between refuses the library, and loads none.
        fresh.replace(library)
        digest.replace(digest_of(library))
    return library


def write_digest(library, name):
    """Writes the digest of a library of that name beside it; its path."""
    content = hashlib.sha256(library.read_bytes()).hexdigest()
    digest = digest_of(library)
    digest.write_text(f"{content}  {name}\n")
    return digest


def _machine_flags(target, features, by_system):
    if not features:
        return []
    # Left to themselves, compilers split these vectors for the sake of CPUs
    # that ran slower with wide ones.
    width = ["-mprefer-vector-width=512"] if "avx512f" in features else []
    if by_system:
        return [f"-m{feature}" for feature in features] + width
    return ["-mcpu=" + "+".join((target.machine, *features)), *width]


def _run(*command):
    subprocess.run([str(part) for part in command], check=True)


def main(argv=None):
    """Builds the library and prints where it is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--target",
        choices=TARGETS,
        help="platform to compile for (default: this one)",
    )
    parser.add_argument("--compiler", help="of the system, such as g++")
    parser.add_argument(
        "--sanitizer", choices=SANITIZERS, help="sanitizer to compile with"
    )
    parser.add_argument(
        "--output",
        default=PACKAGE,
        type=Path,
        help="the folder of the library (default: the package)",
    )
    parser.add_argument(
        "--digest",
        type=Path,
        metavar="LIBRARY",
        help="build nothing: write the digest of a library anew that a tool, "
        "such as strip, has changed",
    )
    args = parser.parse_args(argv)
    if args.digest:
        print(write_digest(args.digest, args.digest.name))
        return
    print(build(args.output, args.target, args.compiler, args.sanitizer))


if __name__ == "__main__":
    main()
