"""The cases of the emulated GPU kernels on a GPU, without a framework's layers.

    python3 kernels/tests/gpu_slot.py           on GPU 0
    python3 kernels/tests/gpu_slot.py --dry     the same, emulated on a CPU

Each case and cell has a row in $OUT/gpu_slot.csv as soon as it is known; images
are in $KERAS_LN_KERNELS_CACHE, else $OUT/images. The exit status is 1 if
anything is wrong. It needs NumPy, a torch for CUDA, and the library:
keras_ln_kernels/libkeras_ln_kernels.so, or g++ to build it. The dry run needs
g++ alone.
"""

import csv
import os
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE.parents[1] / "tests")]
OUT = Path(os.environ.get("OUT", "."))
LIBRARY = HERE.parent / "keras_ln_kernels" / "libkeras_ln_kernels.so"
os.environ.setdefault("KERAS_LN_KERNELS_CACHE", str(OUT / "images"))
if "KERAS_LN_KERNELS_LIBRARY" not in os.environ and not LIBRARY.exists():
    os.environ["KERAS_LN_KERNELS_LIBRARY"] = str(OUT / LIBRARY.name)

import emulated  # noqa: E402 (needs sys.path)
import gpu_problems  # noqa: E402 (needs sys.path)

from keras_ln_kernels import gpu_plan  # noqa: E402 (needs sys.path)


def device():
    """The GPU, or what stands for it."""
    if "--dry" in sys.argv:
        library = emulated.build(OUT, gpu_problems.INSTANCES)
        return emulated.Emulation(library)
    from real_gpu import Real  # it needs a torch

    return Real()


def main():
    """Checks all cases; returns the exit status."""
    OUT.mkdir(parents=True, exist_ok=True)
    library = Path(os.environ.get("KERAS_LN_KERNELS_LIBRARY", LIBRARY))
    if not library.exists():
        import build_library

        build_library.build(library.parent, compiler="g++")
    on, wrong = device(), 0
    with (OUT / "gpu_slot.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["cell", "case", "found"])
        for name, case in gpu_problems.CASES.items():
            for cell in gpu_plan.CELLS:
                options = {"masks": ["mask", "starts", "resets"]}
                drawn = gpu_problems.drawn_of(cell, case, **options)
                said = "right"
                try:
                    gpu_problems.check(on, cell, case, drawn)
                except Exception:  # An error of the device is one too.
                    said = f"WRONG: {traceback.format_exc()[-1500:]}"
                    wrong += 1
                print(f"{cell:5} {name:40} {said}", flush=True)
                table.writerow([cell, name, said])
                file.flush()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
