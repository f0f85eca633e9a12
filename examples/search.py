"""Does layer normalisation help, whatever the settings?

Eight everyday tasks, six kinds of layers, and the same random settings for all
kinds, on JAX:

    lstm, gru                          Keras' layers
    lstm_ln_outside, gru_ln_outside    with keras.layers.LayerNormalization
                                       after them and after embeddings
    lnlstm, lngru                      normalised inside

Each of 64 points of a Sobol sequence has a learning rate, scales of the initial
matrices (of the gains, inside), and usual or log-uniform forget biases. Each
run adds a row to a file in --output-dir; the same command goes on after a kill.
Several processes share the runs:

    KERAS_BACKEND=jax python examples/search.py --process 1/2
    KERAS_BACKEND=jax python examples/search.py --process 2/2

--analyse prints tables, draws figures and writes them into --output-dir, of the
first 16, 32 or 64 points, as far as all tasks and kinds have them.
"""

import functools
import os
import platform
import re
import subprocess
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import everyday_tasks
from common import ending, files, flags
from common.errors import check_backend

KINDS = ("lstm", "lstm_ln_outside", "lnlstm")
KINDS += ("gru", "gru_ln_outside", "lngru")
TASKS = tuple(everyday_tasks.TASKS)
POINTS = 64
SEED = 20261128
# The ranges of the learning rate and of both scales.
RATES, SCALES = (3e-4, 0.3), (0.1, 3.0)
COLUMNS = (
    *("task", "kind", "point", "learning_rate", "input_scale"),
    *("recurrent_scale", "forget_steps", "test_loss", "test_error"),
    *("validation_loss", "updates", "on_the_way", "diverged", "cpu_seconds"),
    *("machine", "commit"),
)
SMOKE = {"task": ("addition", "long_memory"), "points": 2}


class Settings(NamedTuple):
    """A point; `forget_steps` is None for the usual biases."""

    point: int
    learning_rate: float
    input_scale: float
    recurrent_scale: float
    forget_steps: int | None


class Sizes(NamedTuple):
    """How a task is trained."""

    epochs: int
    batch_size: int
    units: int
    examples: int


def sizes_of(task: str, smoke: bool) -> Sizes:
    """The sizes with which `everyday.py` trains, or small ones."""
    epochs, batch_size, units, _, examples, _ = everyday_tasks.TASKS[task]
    usual = Sizes(epochs, batch_size, units, examples)
    return Sizes(2, 32, 8, 480) if smoke else usual


def settings_of(task: str, points: int) -> list[Settings]:
    """The first points; they differ between tasks in `forget_steps` only."""
    from scipy.stats import qmc

    unit = qmc.Sobol(4, scramble=True, rng=SEED).random(POINTS)[:points]
    found = []
    for point, (*places, bias) in enumerate(unit.tolist()):
        rate, *scales = (
            low * (high / low) ** place
            for place, (low, high) in zip(
                places, (RATES, SCALES, SCALES), strict=True
            )
        )
        steps = everyday_tasks.TASKS[task][-1] if bias >= 0.5 else None
        found.append(Settings(point, rate, *scales, steps))
    return found


def runs(
    tasks: Sequence[str], kinds: Sequence[str], points: int
) -> Iterator[tuple[Settings, str, str]]:
    """All settings with task and kind, by point.

    Wherever the search stops, all tasks and kinds have equally many points.
    """
    settings = {task: settings_of(task, points) for task in tasks}
    for point in range(points):
        for task in tasks:
            for kind in kinds:
                yield settings[task][point], task, kind


def mine(task: str, kind: str, process: tuple[int, int]) -> bool:
    """Whether this process trains a kind for a task, at every point.

    Each process compiles its kinds only, and has its share of each task.
    """
    number, processes = process
    place = TASKS.index(task) + KINDS.index(kind)
    return place % processes == number - 1


def machine() -> str:
    """The processor, and the kernels that run the layers."""
    from keras_ln import engine

    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    named = (line for line in lines if line.startswith("model name"))
    _, _, name = next(named, platform.processor()).partition(":")
    kernels = engine.kernels()
    name = name.strip() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {kernels}"


def commit() -> str:
    """The commit of the code, and whether the code was changed since."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    how = {"capture_output": True, "text": True, "check": True}
    asked = "status --porcelain -- examples/*.py keras_ln"
    try:
        found, changed = (
            subprocess.run([*git, *words.split()], **how).stdout.strip()
            for words in ("rev-parse HEAD", asked)
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found + " and changes" * bool(changed)


def append(path: Path, row: dict) -> None:
    """Adds a row in one piece; a part of a row, after a kill, is removed."""
    with open(path, "ab+") as file:
        file.seek(0)
        content = file.read()
        whole = content.rfind(b"\n") + 1
        file.truncate(whole)
        lines = [] if whole else [",".join(COLUMNS)]
        cells = ["" if row[c] is None else str(row[c]) for c in COLUMNS]
        lines.append(",".join(cell.replace(",", ";") for cell in cells))
        file.write("".join(f"{line}\n" for line in lines).encode())
        file.flush()
        os.fsync(file.fileno())


def search(args: Namespace, folder: Path, paths: Sequence[Path]) -> None:
    """Trains what has no row yet, and adds it to a file of this process."""
    import search_analysis
    import search_model

    done = {*search_analysis.read(paths)}
    left = [
        run
        for run in runs(args.task, args.kinds, args.points)
        if mine(*run[1:], args.process) and (run[0].point, *run[1:]) not in done
    ]
    number, processes = args.process
    path = folder / f"{args.prefix}-{number}-of-{processes}.csv"
    facts = {"machine": machine(), "commit": commit()}
    trainer, load = search_model.Trainer(), functools.cache(everyday_tasks.load)
    began = time.monotonic()
    for count, (settings, task, kind) in enumerate(left, 1):
        start, spent = time.monotonic(), time.process_time()
        sizes = sizes_of(task, args.smoke)
        data = load(task, sizes.examples).fold(settings.point)
        row = trainer.train(kind, task, data, sizes, settings)
        now = time.monotonic()
        row |= {"task": task, "kind": kind, **settings._asdict()}
        spent = time.process_time() - spent
        append(path, row | {"cpu_seconds": round(spent, 2), **facts})
        hours = (now - began) / count * (len(left) - count) / 3600
        print(
            f"{count}/{len(left)} point {settings.point} {task} {kind}: test "
            f"loss {row['test_loss']:.4g} in {now - start:.1f} s; about "
            f"{hours:.2f} hours left",
            flush=True,
        )
    print(f"The rows of this process are in {path}.")


def _share(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    share = tuple(map(int, found.groups())) if found else (0, 0)
    if not 1 <= share[0] <= share[1]:
        raise ArgumentTypeError(f"expected I/N, 1 to N of N, received {text!r}")
    return share


def parse(argv: Sequence[str] | None) -> Namespace:
    """The flags with their defaults."""
    parser = flags.Parser(f"{Path(__file__).stem}.py", __doc__)
    add, folder = parser.add_argument, Path(__file__).parent / "results/search"
    for name, known in (("--task", TASKS), ("--kinds", KINDS)):
        some = f"some of {', '.join(known)} (default: all)"
        add(name, nargs="+", choices=known, metavar="NAME", help=some)
    count, first = flags.integer(1, POINTS), f"the first N (default: {POINTS})"
    add("--points", type=count, metavar="N", help=first)
    part = "train the I-th of N parts, others in other processes"
    add("--process", type=_share, default=(1, 1), metavar="I/N", help=part)
    where = "the folder of the rows (default: examples/results/search)"
    add("--output-dir", type=Path, default=folder, metavar="DIR", help=where)
    shown = "train nothing: print tables and draw figures"
    add("--analyse", action="store_true", help=shown)
    small = "small sizes, two tasks and points: to see that everything works"
    add("--smoke", action="store_true", help=small)
    args = parser.parse_args(argv)
    usual = {"task": TASKS, "kinds": KINDS, "points": POINTS}
    for name, value in (usual | (SMOKE if args.smoke else {})).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    args.prefix = "smoke" if args.smoke else "search"
    # In the order of the study, and once each.
    args.task = [task for task in TASKS if task in args.task]
    args.kinds = [kind for kind in KINDS if kind in args.kinds]
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    folder = args.output_dir
    files.check_folder(folder)
    paths = sorted(folder.glob(f"{args.prefix}-*-of-*.csv"))
    if args.analyse:
        import search_analysis

        rows = search_analysis.read(paths)
        found = search_analysis.study(rows, args.task, args.kinds)
        search_analysis.report(found, folder)
        return 0
    # More threads of XLA would add in another order.
    os.environ["NPROC"] = "1"
    check_backend("jax")
    files.make_folder(folder)
    search(args, folder, paths)
    return 0


if __name__ == "__main__":
    ending.execute(main)
