"""The kernels' first minutes on a GPU: numbers, times, a table.

    python3 kernels/tests/gpu_slot.py           all, in at most BUDGET seconds
    python3 kernels/tests/gpu_slot.py SECTION   "lstm A tf32", "meetings", ...
    python3 kernels/tests/gpu_slot.py --dry     the same, emulated on a CPU

A section is a process of its own with a limit: a hang, or an error that a
context keeps, costs that section alone. Rows are in $OUT/gpu_slot.csv as soon
as they are known, images in $KERAS_LN_KERNELS_CACHE, else $OUT/images. The exit
status is 1 if anything is wrong. It needs NumPy, a torch for CUDA, and the
library: keras_ln_kernels/libkeras_ln_kernels.so, or g++ to build it. The dry
run needs g++ alone, and torch for cuDNN's section.
"""

import csv
import importlib.util
import os
import subprocess
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
OUT = Path(os.environ.get("OUT", "."))
BUDGET, LIMIT = float(os.environ.get("BUDGET", 480)), 60
DRY = "--dry" in sys.argv
TABLE = OUT / "gpu_slot.csv"
LIBRARY = HERE.parent / "keras_ln_kernels" / "libkeras_ln_kernels.so"
os.environ.setdefault("KERAS_LN_KERNELS_CACHE", str(OUT / "images"))
if "KERAS_LN_KERNELS_LIBRARY" not in os.environ and not LIBRARY.exists():
    os.environ["KERAS_LN_KERNELS_LIBRARY"] = str(OUT / LIBRARY.name)

import emulated  # noqa: E402
import gpu_problems  # noqa: E402
import numpy as np  # noqa: E402
from gpu_problems import CASES, Case  # noqa: E402
from reference import along, run  # noqa: E402

from keras_ln_kernels import gpu_plan, nvrtc  # noqa: E402

# Rows, steps, features, units.
SIZES = {"A": (128, 64, 256, 256), "B": (64, 100, 512, 512)}
SIZES["C"] = (8, 500, 3, 400)
if DRY:
    SIZES = {"A": (9, 2, 5, 64), "B": (8, 2, 5, 72), "C": (3, 3, 3, 50)}
# Without a GPU, the kind that it stands for.
KIND = emulated.DEVICES["H100"]
# "grid" is where blocks meet in global memory, as on GPUs without clusters.
ORDER = ["correct", "lstm A tf32", "meetings", "lstm A 3xtf32", "lstm B tf32"]
ORDER += ["cudnn", "lstm C tf32", "gru A tf32", "lstm A bfloat16"]
ORDER += ["lstm A tf32 grid", "gru B tf32", "gru C tf32", "lstm B bfloat16"]
ORDER += ["lstm C bfloat16", "lstm B 3xtf32", "lstm C 3xtf32", "gru A 3xtf32"]
# "cta" is with the scope of a wait that primitives.h tells of.
ORDER += [
    "lstm A tf32 cta",
    "gru A bfloat16",
    "lstm A float16",
    "gru A tf32 grid",
]
wrong = []  # Rows of this process that tell of a failure.
if "SECTIONS" in os.environ:
    ORDER = os.environ["SECTIONS"].split(",")


def is_wrong(what, value):
    """Whether a row says that something failed."""
    failed = ("FAILED", "STOPPED", "ENDED", "does not end")
    return what.startswith(failed) or "WRONG" in str(value)


def row(section, what, value):
    """Tells, and keeps."""
    value = f"{value:.4g}" if isinstance(value, float) else value
    print(f"{section:20} {what:32} {value}", flush=True)
    with TABLE.open("a", newline="") as file:
        csv.writer(file).writerow([section, what, value])
    wrong.extend([what] * is_wrong(what, value))


def plans_of(section, of):
    """For forward and backward the plans of a section, the best first."""
    cell, *rest = section.split()
    if cell not in gpu_plan.CELLS:
        return []
    units, format, grid = SIZES[rest[0]][3], rest[1], "grid" in rest
    found = [gpu_plan.plans(cell, w, units, format, of) for w in (False, True)]
    return [[p for p in plans if p.cluster != grid] for plans in found]


class Meetings(gpu_plan.Plan):
    """How tests/cuda/meetings.h is launched; `kept` is whether it sends."""

    @property
    def kernel(self):
        """The instance's name in C++."""
        words = [str(bool(word)).lower() for word in (self.kept, self.cluster)]
        return f"meetings<{self.blocks}, {', '.join(words)}>"


def meeting_plans():
    """Blocks in clusters or not, which send or not."""
    for blocks in (8, 16):
        for cluster in (True, False):
            for sending in (0, 1):
                box = 2 * blocks * 2048 + 128
                yield Meetings(
                    *("lstm", False, 1, blocks, sending, "tf32", cluster),
                    *(256, box if cluster else 0, box),
                )


def image(kernel, architecture):
    """What NVRTC makes of a kernel, of these tests too."""
    by, reason = nvrtc.compiler(99)
    if by is None:
        raise RuntimeError(reason)
    if "cta" in " ".join(sys.argv).split():
        return by.compile(kernel, architecture, ['-DGATE_SCOPE=".acquire.cta"'])
    if not kernel.startswith("meetings"):
        return nvrtc.image(by, kernel, architecture)
    text = (HERE / "cuda" / "meetings.h").read_bytes()
    return by.compile(kernel, architecture, more={"meetings.h": text})


class Dry(emulated.Emulation):
    """The same, emulated."""

    name = "no GPU: emulated"

    def launch(self, plan, arrays, batch, steps, **options):
        """A launch, and `again`."""
        first = super().launch
        self.again = lambda: first(plan, arrays, batch, steps, **options)
        self.again()

    def milliseconds(self, call, times=1):
        """Of one call."""
        start = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - start)


def device():
    """The GPU, or what stands for it."""
    if DRY:
        return Dry(OUT / "libfakecuda.so")
    from real_gpu import Real  # it needs a torch

    return Real(image)


def relative(found, expected):
    """The norm of the difference, over the norm."""
    difference = np.asarray(found, "float64") - expected
    return float(np.linalg.norm(difference) / np.linalg.norm(expected))


def layer(section):
    """Errors against float64, and times of a cell at a size."""
    on = device()
    of = on.gpu.limits(0)
    cell, size, format = section.split()[:3]
    batch, steps, _, units = SIZES[size]
    forward, backward = (
        next(plan for plan in plans if on.gpu.groups(plan, 0) > 0)
        for plans in plans_of(section, of)
    )
    if batch > on.gpu.at_once(forward, 0):
        forward = gpu_plan.wider(forward, of) or forward
    if batch > on.gpu.at_once(backward, 0):
        backward = gpu_plan.wider(backward, of) or backward

    def timed(way, steps):
        ms = on.milliseconds(on.again)
        row(section, f"{way} ms", ms)
        row(section, f"{way} us a step", 1e3 * ms / steps)

    case = Case(units, 0, 0, format, forward.cluster, batch, steps)
    drawn = gpu_problems.drawn_of(cell, case)
    for plan, way in ((forward, "forward"), (backward, "backward")):
        groups = f"{on.gpu.groups(plan, 0)} {plan.blocks} {plan.rows}"
        row(section, f"{way} groups at once, blocks, rows", groups)
    made = gpu_problems.forward(on, forward, drawn)
    timed("forward", steps)
    repeated = gpu_problems.forward(on, forward, drawn)
    same = all(np.array_equal(made[k], repeated[k]) for k in made)
    row(section, "the same bits again", same)
    gpu_problems.backward(on, backward, drawn, made)
    timed("backward", steps)
    # Over many steps a net amplifies what its first one rounds.
    case = case._replace(steps=min(steps, 8))
    drawn = gpu_problems.drawn_of(cell, case)
    made = gpu_problems.forward(on, forward, drawn)
    found = gpu_problems.backward(on, backward, drawn, made)
    outputs, _ = run(
        cell, drawn.x, drawn.states, drawn.weights, dtype="float32"
    )
    row(section, "error of h", relative(made["h"], outputs))
    # Along one direction each: the reference differentiates by complex steps.
    rng = np.random.default_rng(3)
    names = {"d_x": drawn.x, "d_initial_h": drawn.states[0]}
    names["d_recurrent_kernel"] = drawn.weights["recurrent_kernel"]

    def loss(moved):
        weights = drawn.weights | {
            "recurrent_kernel": moved["d_recurrent_kernel"]
        }
        states = (moved["d_initial_h"], *drawn.states[1:])
        made, finals = run(cell, moved["d_x"], states, weights, dtype="float32")
        total = (made * drawn.d_outputs).sum()
        pairs = zip(finals, drawn.d_states, strict=True)
        return total + sum((a * b).sum() for a, b in pairs)

    for name, argument in names.items():
        direction = rng.normal(size=argument.shape)
        expected = along(loss, names, {name: direction})
        error = abs((found[name] * direction).sum() - expected)
        size_of = float(np.linalg.norm(found[name]))
        row(section, f"error of {name}", float(error) / size_of)


def correct(section):
    """The cases of the emulated tests, on the device."""
    on = device()
    for name, case in CASES.items():
        for cell in gpu_plan.CELLS:
            options = {"masks": ["mask", "starts", "resets"]}
            drawn = gpu_problems.drawn_of(cell, case, **options)
            try:
                gpu_problems.check(on, cell, case, drawn)
                said = "right"
            except AssertionError as error:
                said = f"WRONG: {error}"
            row(section, f"{cell}: {name}", said)


def meetings(section):
    """Microseconds of a meeting, alone and with 2 kB from each to all."""
    on = device()
    steps = 3 if DRY else 1000
    for plan in meeting_plans():
        groups = 2 if DRY else 128 // plan.blocks
        on.launch(plan, {}, 8 * groups, steps)
        row(section, plan.kernel, 1e3 * on.milliseconds(on.again) / steps)


def cudnn(section):
    """torch's own layers: milliseconds of inference and of a training step."""
    import torch

    where = "cpu" if DRY else "cuda"
    on = device()
    kinds = [("float32", True), ("float32", False)]
    kinds += [("bfloat16", True), ("float16", True)]
    for size, (batch, steps, features, units) in SIZES.items():
        for kind, tf32 in kinds:
            for name, make in (("LSTM", torch.nn.LSTM), ("GRU", torch.nn.GRU)):
                torch.backends.cuda.matmul.allow_tf32 = tf32
                torch.backends.cudnn.allow_tf32 = tf32
                to = {"device": where, "dtype": getattr(torch, kind)}
                made = make(features, units, batch_first=True, **to)
                x = torch.randn(batch, steps, features, **to).requires_grad_()
                d = torch.randn(batch, steps, units, **to)

                def infer(made=made, x=x):
                    # In training cuDNN keeps what a gradient needs.
                    made.eval()
                    with torch.no_grad():
                        made(x)

                def train(made=made, x=x, d=d):
                    made.train()
                    torch.autograd.grad(made(x)[0], [x, *made.parameters()], d)

                tf = " by TF32" if tf32 and kind == "float32" else ""
                what = f"{name} {size} {kind}{tf}"
                row(section, f"{what} inference ms", on.milliseconds(infer))
                row(section, f"{what} training ms", on.milliseconds(train))


def section(name):
    """Runs one, in this process."""
    run_it = {"correct": correct, "meetings": meetings, "cudnn": cudnn}
    try:
        run_it.get(name, layer)(name)
    except Exception:
        row(name, "FAILED", traceback.format_exc()[-1500:])


def isolated(name, seconds):
    """Runs one in a process of its own, which ends in time."""
    options = ["--dry"] * DRY
    child = subprocess.Popen([sys.executable, __file__, name, *options])
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        row(name, "STOPPED after", f"{seconds:.0f} s")
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            row(name, "does not end", "")
        return
    if child.returncode:
        row(name, "ENDED with", child.returncode)


def compile_one(job):
    """Compiles into the cache; says what is wrong."""
    try:
        image(*job)
    except RuntimeError as error:
        return f"{job[0]}: {error}"


def prepare(sections):
    """Compiles all that the sections need."""
    start = time.monotonic()
    library = os.environ.get("KERAS_LN_KERNELS_LIBRARY", LIBRARY)
    if not Path(library).exists():
        import build_library

        build_library.build(Path(library).parent, compiler="g++")
    of = gpu_plan.limits(*KIND[:3]) if DRY else device().gpu.limits(0)
    # Should the first be refused, the second follows.
    plans = [
        plan
        for name in sections
        for found in plans_of(name, of)
        for best in found[:2]
        for plan in (best, gpu_plan.wider(best, of))
        if plan is not None
    ]
    plans += [
        case.plan(cell, way)
        for case in CASES.values()
        for cell in gpu_plan.CELLS
        for way in (False, True)
    ]
    if DRY:
        emulated.build(OUT, [*plans, *meeting_plans()])
    else:
        jobs = [(plan.kernel, of.architecture) for plan in plans]
        with ProcessPoolExecutor(8, get_context("spawn")) as pool:
            for wrong in filter(
                None, pool.map(compile_one, dict.fromkeys(jobs))
            ):
                row("compile", "FAILED", wrong[:1500])
    row("compile", "seconds", time.monotonic() - start)


def main(sections):
    """All of them, the most telling first; the table last."""
    OUT.mkdir(parents=True, exist_ok=True)
    TABLE.write_text("section,what,value\n")
    start = time.monotonic()
    prepare(sections)
    for name in sections:
        left = BUDGET - (time.monotonic() - start)
        if left < 15:
            row(name, "no time", "")
            continue
        isolated(name, min(LIMIT, left))
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name in sections:
        cells = {r["what"]: r["value"] for r in rows if r["section"] == name}
        print(f"== {name}:", *(f"{k} {v};" for k, v in cells.items()))
    sys.exit(any(is_wrong(r["what"], r["value"]) for r in rows))


if __name__ == "__main__":
    named = [word for word in sys.argv[1:] if word != "--dry"]
    if importlib.util.find_spec("torch") is None:
        ORDER = [name for name in ORDER if name != "cudnn"]
    if named:
        section(named[0])
        sys.exit(bool(wrong))
    else:
        main(ORDER)
