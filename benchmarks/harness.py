"""The common part of the benchmarks: options, and timing in turn.

A benchmark is a dictionary of programs by provider. A program is a function
without arguments that builds everything and returns its steps, `{mode: step}`,
and `step()` runs once and waits for the result. All threads rest for 10 ms
before a step is timed; then its framework multiplies two matrices, as a model
has other operations around the layer: the framework's threads look for more
work at that moment, on the cores that the step needs.

On a GPU a call that is waited for holds a millisecond of the host's, whatever
the program. There a step that `waiting` has made is launched `BACK_TO_BACK`
times and waited for once.
"""

import argparse
import gc
import importlib.metadata
import importlib.util
import logging
import os
import pathlib
import platform
import time

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
# Of the matrices: their product takes a millisecond or two.
SQUARE = (512, 512)
BACK_TO_BACK = 20
TRAINING, INFERENCE = MODES = ("training step", "inference")
# What `on_a_gpu` knows of driver, NVRTC and commit.
SOFTWARE = "KERAS_LN_GPU_SOFTWARE"
COLUMNS = [
    "op",
    "provider",
    "mode",
    "sizes",
    "p20_ms",
    "p50_ms",
    "p80_ms",
    "first_call_ms",
    "device",
    "versions",
]


def parser(name, doc, rounds=9):
    """A command line with the options that every benchmark has.

    Args:
        name: the module.
        doc: its docstring.
        rounds: the default of `--rounds`; None if it measures no rounds.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=doc.splitlines()[0]
    )
    if rounds:
        add_number(parser, "--rounds", rounds, "rounds to measure")
    add_number(parser, "--threads", 2, "threads of every framework")
    parser.add_argument(
        "--output", type=output, help="CSV file to add the results to"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="run tiny sizes, as a test"
    )
    return parser


def add_number(parser, option, default, doc):
    """An option whose value is a positive integer."""
    parser.add_argument(
        option,
        type=positive,
        default=default,
        help=f"{doc} (default: %(default)s)",
    )


def add_dtype(parser):
    """The option `--dtype`."""
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="dtype of the layers (default: %(default)s)",
    )


def positive(text):
    """The number of a command line."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(
            f"expected a positive integer, received {text!r}"
        )
    return int(text)


def output(text):
    """The path of --output, whose folder can be made and written."""
    path = pathlib.Path(text)
    if path.suffix != ".csv":
        raise argparse.ArgumentTypeError(f"{text} does not end in .csv")
    there = next(p for p in path.absolute().parents if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{there} is not writable")
    return path


def set_threads(number):
    """Sets every framework's number of threads, before its first import.

    JAX then compiles each program itself, in place of finding it on the disk.
    """
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    for name in (
        "OMP_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
    ):
        os.environ[name] = str(number)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # TensorFlow would warn that one program is traced too often.
    logging.getLogger("tensorflow").setLevel("ERROR")
    if hasattr(os, "sched_setaffinity"):
        # XLA on JAX counts the processors that it may use.
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, mine[:number])


def waiting(launches, wait):
    """The steps, {mode: step}, of programs that are launched and waited for.

    Args:
        launches: {mode: launch}. `launch()` starts a program.
        wait: a function. `wait(result)` waits for the result of `launch`.
    """

    def made(launch):
        def step():
            return wait(launch())

        step.launch, step.wait = launch, wait
        return step

    return {mode: made(launch) for mode, launch in launches.items()}


def after_products(matrix, steps):
    """The steps, each to be timed right after a product of a framework.

    Args:
        matrix: a square one, of that framework.
        steps: {mode: step}.
    """

    def multiply():
        # Waits for the result, wherever it is computed.
        return float((matrix @ matrix)[0, 0])

    for step in steps.values():
        step.before = multiply
    return steps


def in_turn(steps, rounds, calls=1):
    """{key: first call} and {key: calls of each round}, in ms.

    The first call compiles; two more warm up and count for nothing. Each call
    of a round comes 10 ms after the one before, and right after the product
    of `after_products`, which is not timed. With several `calls`, a round has
    so many back to back, and the time of one.
    """
    first = {key: milliseconds(step) for key, step in steps.items()}
    for step in steps.values():
        step()
        step()
    times = {key: [] for key in steps}
    for _ in range(rounds):
        for key, step in steps.items():
            # The threads of the step before look for work for some more ms,
            # on the cores that this step needs.
            time.sleep(0.01)
            getattr(step, "before", lambda: None)()
            times[key].append(milliseconds(step, calls))
    return first, times


def milliseconds(step, calls=1):
    """The time of one call, of several back to back if it can be launched."""
    calls = calls if hasattr(step, "launch") else 1
    start = time.perf_counter()
    if calls == 1:
        step()
    else:
        for _ in range(calls):
            result = step.launch()
        step.wait(result)
    return 1e3 * (time.perf_counter() - start) / calls


def measure(op, sizes, programs, options):
    """Rows for the CSV: times of all programs in turn.

    Args:
        op: the name of the op.
        sizes: its sizes and dtype.
        programs: {provider: program}.
        options: the options of the command line.
    """
    steps = {
        (provider, mode): step
        for provider, program in programs.items()
        for mode, step in program().items()
    }
    calls = BACK_TO_BACK if on_gpu() else 1
    first, times = in_turn(steps, options.rounds, calls)
    steps.clear()
    gc.collect()
    rows = []
    for (provider, mode), own in times.items():
        figures = (first[provider, mode], *np.percentile(own, [20, 50, 80]))
        first_ms, p20, p50, p80 = (round(float(f), 3) for f in figures)
        values = [op, provider, mode, sizes, p20, p50, p80, first_ms]
        values += [device(options.threads), versions()]
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return sorted(rows, key=lambda row: MODES.index(row["mode"]))


def resident(field):
    """A field of /proc/self/status in MB, or None without that file."""
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        return None
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines[field].split()[0]) / 1024


def versions(*others):
    """Names and versions of the packages that were measured."""
    names = ("keras-ln", "keras", "tensorflow", "jax", "torch", *others)
    found = [f"python {platform.python_version()}"]
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join([*found, *filter(None, [os.environ.get(SOFTWARE)])])


def on_gpu():
    """Whether Keras' framework computes on a GPU."""
    import keras

    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.default_backend() == "gpu"
    if backend == "torch":
        import torch

        return torch.cuda.is_available()
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def device(threads):
    """The GPU's name, or the processor's and the number of threads."""
    import keras

    if on_gpu() and keras.backend.backend() == "torch":
        import torch

        return torch.cuda.get_device_name()
    if on_gpu() and importlib.util.find_spec("jax"):
        import jax

        return jax.devices()[0].device_kind
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line for line in lines if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else platform.machine()
    return f"{name}, {threads} threads"
