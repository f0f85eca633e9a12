"""Images of GPU kernels, compiled at first use and kept on disk.

The compiler is NVRTC, from wherever a framework brought it. An image is kept in
a folder of the user's cache, by its source, options, architecture and NVRTC's
version.
"""

import ctypes
import functools
import hashlib
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

_HERE = Path(__file__).resolve().parent
# In a wheel the sources are beside this file.
_FOLDERS = (_HERE / "cuda", _HERE.parent / "src" / "cuda")
_PROGRAM = b'#include "kernels.h"\n'
_OPTIONS = ("--std=c++17", "-default-device")
_BUILTINS = "libnvrtc-builtins.so.1?.?"
_MAGIC = b"keras-ln-kernels image 1\n"


class Image(NamedTuple):
    """A binary for a driver, and the name of the kernel in it."""

    cubin: bytes
    name: str
    log: str = ""  # of the compiler; empty if the image was kept


def headers() -> dict[str, bytes]:
    """The sources, by file name."""
    folder = next((f for f in _FOLDERS if f.is_dir()), _FOLDERS[0])
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.h"))}


# As the loader finds them, by LD_LIBRARY_PATH and ldconfig.
_BARE = [Path("libnvrtc.so.13"), Path("libnvrtc.so.12")]


def libraries() -> list[Path]:
    """The files of NVRTC that are on this machine, and what the loader has.

    They are in wheels, conda's environments (which a venv may stand on),
    CUDA_HOME or CUDA_PATH, and the folders of NVIDIA's, Debian's and Arch's
    packages.
    """
    folders = [Path(p, "nvidia") for p in sys.path if Path(p).is_dir()]
    found = [p for f in folders for p in sorted(f.glob("*/lib/libnvrtc.so.1?"))]
    named = [os.environ.get(n) for n in ("CONDA_PREFIX", "CUDA_HOME")]
    named += [os.environ.get("CUDA_PATH"), sys.prefix, sys.base_prefix]
    roots = [Path(n) for n in dict.fromkeys(named) if n]
    roots += [*sorted(Path("/usr/local").glob("cuda*")), Path("/opt/cuda")]
    for folder in ("lib64", "lib", "targets/*/lib"):
        for root in roots:
            found += sorted(root.glob(f"{folder}/libnvrtc.so.1?"))
    found += sorted(Path("/usr/lib").glob("*-linux-gnu/libnvrtc.so.1?"))
    return [*dict.fromkeys(p.resolve() for p in found), *_BARE]


class Compiler:
    """NVRTC.

    Raises:
        OSError: if the file is no library that can be loaded.
    """

    def __init__(self, path: Path):
        """Loads it."""
        # The library opens this one by its bare name, on the loader's paths.
        beside = path.parent if path.is_absolute() else None
        for builtins in beside.glob(_BUILTINS) if beside else ():
            ctypes.CDLL(str(builtins))
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        count = ctypes.c_int()
        self._call("GetNumSupportedArchs", ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._call("GetSupportedArchs", known)
        self.architectures = tuple(known)

    def compile(
        self, kernel: str, architecture: str, options: Iterable[str] = ()
    ) -> Image:
        """An instance of a kernel, by its name in C++, for an architecture.

        Raises:
            RuntimeError: with the message of the compiler.
        """
        sources = headers()
        program, name = ctypes.c_void_p(), kernel.encode()
        self._call(
            "CreateProgram",
            ctypes.byref(program),
            _PROGRAM,
            b"kernels.cu",
            len(sources),
            _strings(sources.values()),
            _strings(file.encode() for file in sources),
        )
        try:
            self._call("AddNameExpression", program, name)
            flags = [f"--gpu-architecture={architecture}", *_OPTIONS, *options]
            code = self._library.nvrtcCompileProgram(
                program, len(flags), _strings(flag.encode() for flag in flags)
            )
            log = self._text("ProgramLog", program).rstrip(b"\0").decode()
            if code:
                raise RuntimeError(
                    f"NVRTC {'.'.join(map(str, self.version))} does not "
                    f"compile {kernel} for {architecture}: "
                    f"{log.strip() or self._explained(code)}"
                )
            lowered = ctypes.c_char_p()
            self._call("GetLoweredName", program, name, ctypes.byref(lowered))
            cubin = self._text("CUBIN", program)
            return Image(cubin, (lowered.value or b"").decode(), log)
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _text(self, what: str, program: Any) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, text)
        return text.raw

    def _explained(self, code: int) -> str:
        return self._library.nvrtcGetErrorString(code).decode()

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, f"nvrtc{function}")(*arguments)
        if code:
            raise RuntimeError(f"nvrtc{function}: {self._explained(code)}.")


def _strings(items: Iterable[bytes]) -> Any:
    texts = list(items)
    return (ctypes.c_char_p * len(texts))(*texts)


@functools.cache
def compiler(cuda: int) -> tuple[Compiler | None, str | None]:
    """NVRTC for a driver of CUDA `cuda`, or why there is none.

    Drivers load binaries of their own CUDA or an older one.
    """
    found, refused = [], []
    for path in libraries():
        try:
            found.append(Compiler(path))
        except (OSError, RuntimeError, AttributeError) as error:
            if path not in _BARE:
                refused.append(f"{path} does not load ({error})")
    fitting = [c for c in found if 12 <= c.version[0] <= cuda]
    if fitting:
        return max(fitting, key=lambda c: c.version), None
    for other in found:
        version = ".".join(map(str, other.version))
        refused.append(f"NVRTC {version} is not for a driver of CUDA {cuda}")
    return None, (
        f"there is no NVRTC for CUDA {cuda}: "
        + ("; ".join(refused) or "no package nvidia-cuda-nvrtc is installed")
        + "."
    )


def folder() -> Path:
    """The folder of images: KERAS_LN_KERNELS_CACHE, or the user's cache."""
    given = os.environ.get("KERAS_LN_KERNELS_CACHE")
    if given:
        return Path(given)
    caches = os.environ.get("XDG_CACHE_HOME") or Path("~", ".cache")
    found = os.path.expanduser(Path(caches, "keras_ln_kernels"))
    # Without a home nothing can be written: images stay in memory.
    return Path(os.devnull if found.startswith("~") else found)


_images: dict[Path, Image] = {}
_lock = threading.Lock()


def image(by: Compiler, kernel: str, architecture: str) -> Image:
    """A kernel's image: from memory, the disk, or the compiler.

    If the file cannot be read, the kernel is compiled again; if it cannot be
    written, the image stays in memory.

    Raises:
        RuntimeError: with the message of the compiler.
    """
    parts = [_MAGIC, _PROGRAM, kernel, architecture, by.version, _OPTIONS]
    key = hashlib.sha256(repr([parts, headers()]).encode()).hexdigest()
    path = folder() / f"{key}.cubin"
    with _lock:
        if path not in _images:
            kept = _read(path)
            if kept is None:
                kept = by.compile(kernel, architecture)
                _write(path, kept)
            _images[path] = kept
        return _images[path]


def trusted(path: Path) -> bool:
    """Whether this user or root has a file, and nobody else may write it.

    Raises:
        OSError: if it is not there.
    """
    for each in (path, path.parent):
        found = each.stat()
        if found.st_uid not in (0, os.getuid()) or found.st_mode & 0o022:
            return False
    return True


@functools.cache
def _warn_of(folder: Path) -> None:
    warnings.warn(
        f"GPU kernels in {folder} are compiled again: others may write there, "
        f"or have it. `chmod go-w {folder}` keeps them out.",
        stacklevel=2,
    )


def _read(path: Path) -> Image | None:
    try:
        if not trusted(path):
            _warn_of(path.parent)
            return None
        whole = path.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + 32
    digest = hashlib.sha256(whole[start:]).digest()
    if whole[:start] != _MAGIC + digest:
        return None
    name, _, cubin = whole[start:].partition(b"\n")
    return Image(cubin, name.decode())


def _write(path: Path, made: Image) -> None:
    content = made.name.encode() + b"\n" + made.cubin
    whole = _MAGIC + hashlib.sha256(content).digest() + content
    try:
        path.parent.mkdir(0o755, parents=True, exist_ok=True)
        # Written beside and moved: others see all of it or nothing.
        number, beside = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    except OSError:
        return
    try:
        with os.fdopen(number, "wb") as file:
            file.write(whole)
        os.replace(beside, path)
    except OSError:
        Path(beside).unlink(missing_ok=True)
