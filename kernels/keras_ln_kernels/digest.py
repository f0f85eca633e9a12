"""Whether a file is a whole library, before it is loaded.

The system's loader ends the process if a library is cut off, or if bits
of it have changed.
"""

import hashlib
import os
import struct
import sys
from pathlib import Path

# The numbers that ELF has for machines.
_MACHINES = {"x86_64": 62, "aarch64": 183}
_HEADER, _SEGMENT = 64, 56  # bytes
_SHARED_OBJECT = 3


def damage(path: Path, built_here: bool) -> str | None:
    """None, or the sentence that says why the file is not to be loaded.

    Args:
        path: of the library. It is compared with the digest beside it, if
            the build has written one.
        built_here: whether there must be a digest.
    """
    try:
        if path.exists() and not path.is_file():
            return f"{path} is no file."
        content = path.read_bytes()
    except FileNotFoundError:
        return (
            f"{path} is missing: it is compiled when the package is installed."
        )
    except OSError as error:
        return f"{path} cannot be read ({error.strerror})."
    digest = path.with_name(f"{path.name}.sha256")
    try:
        written = digest.read_bytes().split()[:1]
    except FileNotFoundError:
        # On macOS PyInstaller leaves it out, and the system checks a signature.
        frozen = sys.platform == "darwin" and getattr(sys, "frozen", False)
        if built_here and not frozen:
            return f"{digest} is missing: install the package again."
    except OSError as error:
        return f"{digest} cannot be read ({error.strerror})."
    else:
        if written != [hashlib.sha256(content).hexdigest().encode()]:
            return (
                f"{path} is not as it was built (its digest differs): install "
                "it again. If you signed, stripped or repaired it, write a "
                f"new digest: shasum -a 256 {path.name} > {digest.name}"
            )
    # The loader of macOS checks the header itself.
    wrong = _wrong_in_elf(content) if sys.platform == "linux" else None
    return None if wrong is None else f"{path} {wrong}."


def _wrong_in_elf(content: bytes) -> str | None:
    """The fault of the header, or of the offsets in it, or None."""
    if len(content) < _HEADER or content[:4] != b"\x7fELF":
        return "is no library: it has no header of ELF"
    order, number = ("<", 1) if sys.byteorder == "little" else (">", 2)
    kind, machine = struct.unpack_from(f"{order}HH", content, 16)
    here = os.uname().machine
    # Of 64 bits, with this machine's order of bytes.
    if content[4:6] != bytes([2, number]) or machine != _MACHINES.get(
        here, machine
    ):
        return f"is for another machine; this one is {here}"
    if kind != _SHARED_OBJECT:
        return "is no shared library"
    segments, sections = struct.unpack_from(f"{order}QQ", content, 32)
    sizes = struct.unpack_from(f"{order}4H", content, 54)
    ends = [segments + sizes[0] * sizes[1], sections + sizes[2] * sizes[3]]
    if sizes[0] == _SEGMENT and ends[0] <= len(content):
        for start in range(segments, ends[0], _SEGMENT):
            (offset,) = struct.unpack_from(f"{order}Q", content, start + 8)
            (size,) = struct.unpack_from(f"{order}Q", content, start + 32)
            ends.append(offset + size)
    if sizes[0] != _SEGMENT or max(ends) > len(content):
        return f"is cut off or damaged: it has {len(content)} bytes"
    return None
