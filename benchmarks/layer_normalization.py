"""Times LayerNormalization, ours against Keras' and torch's.

    python -m benchmarks.layer_normalization

prints a table and writes benchmarks/results/layer_normalization.csv and a
plot beside it. A training step is the forward pass and the gradients of the
input, gamma and beta; inference is the forward pass. The programs run in
turn (A B A B ...) in one process on the same threads. Peak memory is what a
process of its own needs above its inputs, compiling included.

KERAS_BACKEND chooses the framework; torch's own layer joins in where torch
is installed.
"""

import argparse
import csv
import gc
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

RESULTS = pathlib.Path(__file__).parent / "results"
COLUMNS = [
    "op",
    "provider",
    "mode",
    "sizes",
    "p20_ms",
    "p50_ms",
    "p80_ms",
    "peak_memory_mb",
    "device",
    "versions",
]
MODES = ("training step", "inference")


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.layer_normalization",
        description=__doc__.splitlines()[0],
    )
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=21, help="at least 9")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--output", type=pathlib.Path, default=RESULTS / "layer_normalization"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="tiny, to see that all runs"
    )
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.smoke:
        options.rows, options.features, options.rounds = 64, 32, 3
    return options


def set_threads(number):
    """Give every framework as many threads; before the first import."""
    for name in (
        "OMP_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
    ):
        os.environ[name] = str(number)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if hasattr(os, "sched_setaffinity"):
        # XLA on JAX counts the processors that it may use.
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, mine[:number])


def programs(options):
    """{(provider, mode): a function that runs one step to its end}."""
    import keras
    import numpy as np

    import keras_ln

    rng = np.random.default_rng(0)
    shape = (options.rows, options.features)
    arrays = [rng.normal(size=shape).astype("float32") for _ in range(2)]
    parameters = [
        rng.normal(size=shape[1:]).astype("float32") for _ in range(2)
    ]
    backend = keras.backend.backend()
    make = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}[backend]
    found = {}
    for provider, layer_class in (
        ("keras_ln", keras_ln.LayerNormalization),
        ("keras", keras.layers.LayerNormalization),
    ):
        layer = layer_class(epsilon=1e-5, dtype=options.dtype)
        layer.build(shape)
        layer.set_weights(parameters)
        for suffix, steps in make(layer, arrays, options.dtype).items():
            for mode, step in zip(MODES, steps, strict=True):
                found[f"{provider} {backend}{suffix}", mode] = step
    # XLA compiles our op in any mode: the outer program's is the user's.
    for mode in MODES:
        found.pop(("keras_ln tensorflow XLA", mode), None)
    if importlib.util.find_spec("torch"):
        import torch

        layer = torch.nn.LayerNorm(shape[1:], eps=1e-5)
        layer = layer.to(getattr(torch, options.dtype))
        with torch.no_grad():
            for own, value in zip(layer.parameters(), parameters, strict=True):
                own.copy_(torch.tensor(value))
        torch.set_num_threads(options.threads)
        steps = _torch_steps(
            layer, list(layer.parameters()), arrays, options.dtype
        )
        for mode, step in zip(MODES, steps, strict=True):
            found["torch nn.LayerNorm", mode] = step
    return found


def _tensorflow(layer, arrays, dtype):
    import tensorflow as tf

    x, cotangent = (tf.cast(tf.constant(a), dtype) for a in arrays)
    weights = [variable.value for variable in layer.weights]

    def step(x, cotangent):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        return y, tape.gradient(y, [x, *weights], output_gradients=cotangent)

    def steps(jit_compile):
        train = tf.function(step, jit_compile=jit_compile)
        infer = tf.function(lambda x: layer(x), jit_compile=jit_compile)

        def forced(outputs):
            # On a GPU the copy waits for the program; here it is no copy.
            return tf.nest.flatten(outputs)[-1][..., :1].numpy()

        return (
            lambda: forced(train(x, cotangent)),
            lambda: forced(infer(x)),
        )

    return {" graph": steps(False), " XLA": steps(True)}


def _jax(layer, arrays, dtype):
    import jax

    x, cotangent = (jax.numpy.asarray(a, dtype) for a in arrays)
    weights = [variable.value for variable in layer.weights]

    def infer(weights, x):
        return layer.stateless_call(weights, [], x)[0]

    def train(weights, x, cotangent):
        y, pull_back = jax.vjp(infer, weights, x)
        return y, pull_back(cotangent)

    train, infer = jax.jit(train), jax.jit(infer)
    return {
        "": (
            lambda: jax.block_until_ready(train(weights, x, cotangent)),
            lambda: jax.block_until_ready(infer(weights, x)),
        )
    }


def _torch(layer, arrays, dtype):
    weights = [variable.value for variable in layer.weights]
    return {"": _torch_steps(layer, weights, arrays, dtype)}


def _torch_steps(layer, weights, arrays, dtype):
    import torch

    x, cotangent = (
        torch.tensor(a, dtype=getattr(torch, dtype)) for a in arrays
    )
    x.requires_grad_()

    def train():
        y = layer(x)
        return y, torch.autograd.grad(y, [x, *weights], cotangent)

    @torch.no_grad()
    def infer():
        return layer(x)

    return train, infer


def timed(steps, rounds):
    """{key: (p20, p50, p80) in ms}, the steps run in turn."""
    import numpy as np

    for step in steps.values():
        for _ in range(3):
            step()
    times = {key: [] for key in steps}
    for _ in range(rounds):
        for key, step in steps.items():
            start = time.perf_counter()
            step()
            times[key].append(1e3 * (time.perf_counter() - start))
    return {k: np.percentile(v, [20, 50, 80]) for k, v in times.items()}


def resident(field):
    """A field of /proc/self/status in MB, or None where there is none."""
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        return None
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines[field].split()[0]) / 1024


def peak_memory(key, options):
    """MB that one program needs at most, measured in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.layer_normalization"]
    command += ["--rows", str(options.rows), "--dtype", options.dtype]
    command += ["--features", str(options.features)]
    command += ["--threads", str(options.threads), "--memory-of", *key]
    run = subprocess.run(
        command,
        cwd=pathlib.Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout.splitlines()[-1])


def print_memory(key, options):
    """The child's side of `peak_memory`."""
    # All inputs stay: memory that they leave free would serve the steps.
    steps = programs(options)
    gc.collect()
    before = resident("VmRSS")
    clear_refs = pathlib.Path("/proc/self/clear_refs")
    if clear_refs.exists():
        clear_refs.write_text("5")  # forget the peak so far
    for _ in range(3):
        steps[tuple(key)]()
    after = resident("VmHWM")
    print(json.dumps(None if before is None else after - before))


def versions():
    """Names and versions of what was measured."""
    names = ("keras-ln", "keras", "tensorflow", "jax", "torch")
    found = [f"python {platform.python_version()}"]
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def device(threads):
    """The processor's name and the number of threads."""
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line for line in lines if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else platform.machine()
    return f"{name}, {threads} threads"


def plot(rows, path):
    """Bars of the medians, one panel per mode."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3), layout="constrained")
    panels = figure.subplots(1, len(MODES))
    for panel, mode in zip(panels, MODES, strict=True):
        own = [row for row in rows if row["mode"] == mode]
        panel.barh(
            [row["provider"] for row in own], [row["p50_ms"] for row in own]
        )
        panel.invert_yaxis()
        panel.set(title=f"{mode}, {own[0]['sizes']}", xlabel="ms (median)")
    figure.savefig(path)


def main(argv=None):
    """Measure, print, write."""
    options = parse(argv)
    set_threads(options.threads)
    if options.memory_of:
        print_memory(options.memory_of, options)
        return
    steps = programs(options)
    times = timed(steps, options.rounds)
    sizes = f"{options.rows}x{options.features} {options.dtype}"
    rows = []
    for (provider, mode), percentiles in times.items():
        memory = peak_memory((provider, mode), options)
        p20, p50, p80 = (round(float(p), 3) for p in percentiles)
        values = ["LayerNormalization", provider, mode, sizes, p20, p50, p80]
        values.append("" if memory is None else round(memory, 1))
        values += [device(options.threads), versions()]
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    rows.sort(key=lambda row: MODES.index(row["mode"]))
    for row in rows:
        ours = next(r for r in rows if r["mode"] == row["mode"])
        print(
            f"{row['mode']:14} {row['provider']:26} {row['p50_ms']:8.2f} ms"
            f" ({row['p20_ms']:.2f} to {row['p80_ms']:.2f})"
            f"  ours/this {ours['p50_ms'] / row['p50_ms']:5.2f}"
            f"  {row['peak_memory_mb']} MB"
        )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with open(options.output.with_suffix(".csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if importlib.util.find_spec("matplotlib"):
        plot(rows, options.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
