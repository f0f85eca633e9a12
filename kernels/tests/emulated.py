"""GPU kernels on a CPU: built into a driver, and called through it."""

import ctypes
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from keras_ln_kernels import gpu, nvrtc

HERE = Path(__file__).parent
SOURCES = HERE.parent / "src" / "cuda"
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-DEMU", "-Wall", "-Werror"]
FLAGS += ["-Wno-unknown-pragmas"]

# Bytes behind a workspace, which no kernel may write.
GUARD = 256

# Compute capability, shared memory of a block, multiprocessors.
DEVICES = {
    "A100": (8, 0, 166912, 108),
    "H100": (9, 0, 232448, 132),
    "B200": (10, 0, 232448, 148),
    "RTX 5090": (12, 0, 101376, 170),
}


def compiler():
    """The system's C++ compiler, or the one that builds the library."""
    own = os.environ.get("KERAS_LN_KERNELS_COMPILER") or shutil.which("g++")
    return [own] if own else [sys.executable, "-m", "ziglang", "c++"]


def build(folder, plans, *flags, processes=2):
    """The driver that emulates, with these instances; returns its path."""
    names = list(dict.fromkeys(plan.kernel for plan in plans))
    texts = {"driver": '#include "fake_driver.cc"\n'}
    for i in range(processes):
        made = [
            f"template __global__ void {name}(Sequence);\n"
            for name in names[i::processes]
        ]
        texts[f"kernels{i}"] = '#include "kernels.h"\n' + "".join(made)
    command = [*compiler(), *FLAGS, *flags]

    def compiled(name):
        source = Path(folder, f"{name}.cc")
        source.write_text(texts[name])
        to = source.with_suffix(".o")
        paths = [f"-I{SOURCES}", f"-I{HERE / 'cuda'}", "-c", source, "-o", to]
        subprocess.run([*command, *paths], check=True)
        return to

    with ThreadPoolExecutor(processes) as pool:
        objects = list(pool.map(compiled, reversed(texts)))
    library = Path(folder, "libfakecuda.so")
    link = ["-shared", *objects, "-ldl", "-o", library]
    subprocess.run([*command, *link], check=True)
    return library


def by_name(kernel, architecture):
    """Stands for an image: the name that compilers give an instance."""
    name, arguments = kernel.rstrip(">").split("<")
    words = {"false": "Lb0E", "true": "Lb1E"}
    each = [words.get(a, f"Li{a}E") for a in arguments.split(", ")]
    return nvrtc.Image(b"", f"_Z{len(name)}{name}I{''.join(each)}Ev8Sequence")


class Emulation:
    """A driver of two GPUs, whose memory is the process's own."""

    def __init__(self, library, images=by_name):
        self.library = library
        self.fake = ctypes.CDLL(str(library))
        self.fake.fake_log.restype = ctypes.c_char_p
        for device, kind in enumerate(("H100", "A100")):
            self.become(device, kind)
        self.gpu = gpu.Gpu(str(library), images)

    def become(self, device, kind):
        """Makes a device one of DEVICES."""
        # It launches clusters from 9.0 on, and blocks that meet in memory.
        values = *DEVICES[kind], DEVICES[kind][0] >= 9, 1
        for number, value in zip(
            (75, 76, 97, 16, 120, 95), values, strict=True
        ):
            self.fake.fake_attribute(device, number, value)

    def log(self):
        """Words and numbers of each call since `fake_forget`."""
        lines = self.fake.fake_log().decode().splitlines()
        split = (line.split() for line in lines)
        return [(word, *map(int, numbers)) for word, *numbers in split]

    def launch(self, plan, arrays, batch, steps, device=0, **options):
        """A launch on arrays of NumPy."""
        extra = {
            name: np.full(size + GUARD, 0xFF, "u1")
            for name, size in self.gpu.workspace(plan, device, batch).items()
        }
        arrays = {k: a for k, a in arrays.items() if a is not None} | extra
        self.remember(arrays, device)
        places = {name: a.ctypes.data for name, a in arrays.items()}
        self.gpu.launch(plan, places, batch, steps, device=device, **options)
        for name, array in extra.items():
            assert (array[-GUARD:] == 0xFF).all(), f"written behind {name}"

    def remember(self, arrays, device):
        """Says that these are in a device's memory."""
        for a in arrays.values():
            number = ctypes.c_uint64
            self.fake.fake_memory(
                number(a.ctypes.data), number(max(a.nbytes, 1)), device
            )
