"""What random configurations give, to compare two trees of the package.

    record.py draw configurations.json --count 2000 --seed 0
    record.py write configurations.json before.npz
    record.py compare before.npz after.npz --tolerance 1e-12

`draw` makes the configurations once: of every public layer, cell and function,
and of Keras' RNN with a cell. `write` runs them on KERAS_BACKEND, with the
package and the CPU extension of its Python (KERAS_LN_KERNELS=0 switches
these off), and keeps outputs, gradients of inputs, states and weights, the
variables afterwards, which implementation ran, and the error where it refuses.
`compare` fails if anything differs: any byte, or with `--tolerance` what is
further apart than that share of its array's largest element, in narrower dtypes
as much more as their roundings are larger. Only public names are used.
"""

import argparse
import collections
import contextlib
import json
import multiprocessing
import os
import re
import sys
import time
import warnings

import numpy as np
import xla_flags
from configurations import Values, draw, problem_of

# Before a framework is imported. What is equal is compiled once.
os.environ.update(
    JAX_ENABLE_X64="1",
    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
    JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES="none",
    TF_CPP_MIN_LOG_LEVEL="3",
    XLA_FLAGS=xla_flags.flags(xla_flags.installed()),
)

# So many configurations at a time; several seeds of a plan are in one part.
PART = 50


def loss_of(outputs, values):
    """Sum of outputs times cotangents, and the outputs that are tensors."""
    import keras

    outputs = [y for y in keras.tree.flatten(outputs) if y is not None]
    terms = []
    for k, y in enumerate(outputs):
        weight = values.number(f"cotangent{k}", y.shape)
        weight = keras.ops.convert_to_tensor(weight, y.dtype)
        terms.append(keras.ops.sum(keras.ops.cast(y * weight, "float64")))
    return sum(terms[1:], terms[0]), outputs


def named(variables):
    """Their values, by names that do not depend on earlier layers."""
    return {f"{k} {v.name}": v.value for k, v in enumerate(variables or ())}


def on_tensorflow(call, arrays, constants, layer, values, compiled):
    import tensorflow as tf

    weights = named(layer and layer.trainable_variables)

    def run(arrays, constants):
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            loss, outputs = loss_of(call(arrays | constants), values)
        return outputs, tape.gradient(
            loss, arrays | weights, unconnected_gradients="zero"
        )

    run = tf.function(run, autograph=False) if compiled else run
    return run(arrays, constants)


def on_jax(call, arrays, constants, layer, values, compiled):
    import jax
    import keras

    others = layer.non_trainable_variables if layer else []
    trainable = layer.trainable_variables if layer else []
    weights = named(trainable)

    def run(arrays, weights, constants):
        pairs = zip(trainable, weights.values(), strict=True)
        with keras.StatelessScope(pairs) as scope:
            loss, outputs = loss_of(call(arrays | constants), values)
        after = [scope.get_current_value(v) for v in others]
        return loss, (outputs, after)

    run = jax.grad(run, (0, 1), has_aux=True)
    run = jax.jit(run) if compiled else run
    gradients, (outputs, after) = run(arrays, weights, constants)
    for variable, value in zip(others, after, strict=True):
        if value is not None:
            variable.assign(value)
    return outputs, gradients[0] | gradients[1]


def on_torch(call, arrays, constants, layer, values, compiled):
    import torch

    for array in arrays.values():
        array.requires_grad_()
    loss, outputs = loss_of(call(arrays | constants), values)
    sources = arrays | named(layer and layer.trainable_variables)
    found = torch.autograd.grad(loss, [*sources.values()], allow_unused=True)
    return outputs, dict(zip(sources, found, strict=True))


def record(config):
    """Everything that one configuration gives, by name."""
    import keras

    from keras_ln import ops

    backend, found = keras.backend.backend(), {}
    unroll, context = config["portable"], contextlib.nullcontext()
    if unroll is not None:
        context = ops.portable(unroll=unroll)
    try:
        with context:
            call, arrays, constants, layer = problem_of(config)
            if hasattr(layer, "use_fused"):
                found["implementation"] = ops.implementation(layer)[0]
            for number in range(1 + ("stateful" in config["arguments"])):
                outputs, gradients = globals()[f"on_{backend}"](
                    call,
                    arrays,
                    constants,
                    layer,
                    Values(config),
                    config["compiled"],
                )
                found |= {
                    f"output {number} {k}": y for k, y in enumerate(outputs)
                }
                found |= {
                    f"gradient {number} {n}": g
                    for n, g in gradients.items()
                    if g is not None
                }
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return {"error": re.sub("0x[0-9a-f]+|[0-9]+ms", "...", text)}
    others = named(layer and layer.non_trainable_variables)
    found |= {f"variable {name}": value for name, value in others.items()}

    # NumPy has no bfloat16.
    def array(value):
        if isinstance(value, str):
            return np.asarray(value)
        dtype = keras.backend.standardize_dtype(value.dtype)
        value = (
            keras.ops.cast(value, "float32") if dtype == "bfloat16" else value
        )
        return np.array(keras.ops.convert_to_numpy(value))

    return {name: array(value) for name, value in found.items()}


def records(configs):
    """What some configurations give, in a process that does so few of them."""
    warnings.simplefilter("ignore")
    return [record(config) for config in configs]


def write(configurations, path, count, jobs):
    """Writes the record of the first `count` configurations."""
    start, found, kinds = time.perf_counter(), {}, collections.Counter()
    with open(configurations) as file:
        configs = json.load(file)[:count]
    parts = [configs[n : n + PART] for n in range(0, len(configs), PART)]
    # Programs that XLA compiled are never freed.
    processes = multiprocessing.get_context("spawn")
    with processes.Pool(jobs, maxtasksperchild=8) as pool:
        for part in pool.imap(records, parts):
            for results in part:
                number = sum(kinds.values())
                kinds[str(results.get("implementation", [*results][0]))] += 1
                found |= {
                    f"{number}/{n}": value for n, value in results.items()
                }
            print(sum(kinds.values()), "written", file=sys.stderr, flush=True)
    found["configurations"] = np.asarray([json.dumps(c) for c in configs])
    with open(path, "wb") as file:
        np.savez_compressed(file, **found)
    seconds = time.perf_counter() - start
    print(f"{path}: {len(found)} arrays in {seconds:.0f} s, {dict(kinds)}")
    return 0


def difference(one, two, tolerance):
    """What tells two arrays apart, or ""."""
    if one.dtype.kind == "U":
        return "" if np.array_equal(one, two) else f"{one} became {two}"
    if one.dtype != two.dtype or one.shape != two.shape:
        return f"{one.dtype}{one.shape} became {two.dtype}{two.shape}"
    if one.tobytes() == two.tobytes():
        return ""
    if not np.issubdtype(one.dtype, np.floating):
        return f"{one} became {two}"
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], two[~finite], equal_nan=True):
        return f"{one} became {two}"
    one, two = one[finite], two[finite]
    largest = np.abs(np.float64(one)).max(initial=0.0)
    share = np.abs(np.float64(one) - two).max() / (largest or 1.0)
    roundings = np.finfo(one.dtype).eps / np.finfo("float64").eps
    if tolerance is not None and share <= tolerance * roundings:
        return ""
    return f"{share:.1e} of the largest element, in {one.dtype}"


def compare(first, second, tolerance):
    """Prints what differs; returns 1 if anything does."""
    one, two = np.load(first), np.load(second)
    configs = min(one["configurations"], two["configurations"], key=len)
    for found in (one, two):
        if found["configurations"][: len(configs)].tolist() != configs.tolist():
            raise SystemExit("The records are of different configurations.")
    names = [n for n in dict.fromkeys([*one.files, *two.files]) if "/" in n]
    names = [n for n in names if int(n.partition("/")[0]) < len(configs)]
    different = collections.defaultdict(list)
    for name in names:
        if name not in one or name not in two:
            what = f"only in {first if name in one else second}"
            text = (one if name in one else two)[name]
            what += f": {text}" if text.dtype.kind == "U" else ""
        else:
            what = difference(one[name], two[name], tolerance)
        if what:
            number, _, array = name.partition("/")
            different[int(number)].append(f"{array}: {what}")
    for number, lines in sorted(different.items()):
        print(f"{number} {configs[number]}", *lines, sep="\n    ")
    print(
        f"{len(names)} arrays of {len(configs)} configurations: "
        f"{len(different)} configurations differ."
    )
    return 1 if different else 0


def main():
    """Does what the first argument says; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("path")
    drawing.add_argument("--count", type=int, default=2000)
    drawing.add_argument("--seed", type=int, default=0)
    drawing.add_argument(
        "--values",
        type=int,
        default=1,
        help="seeds of each plan, for which XLA compiles once",
    )
    writing = commands.add_parser("write")
    writing.add_argument("configurations")
    writing.add_argument("path")
    writing.add_argument("--count", type=int, help="the first of them alone")
    writing.add_argument("--jobs", type=int, default=1)
    comparing = commands.add_parser("compare")
    comparing.add_argument("first")
    comparing.add_argument("second")
    comparing.add_argument("--tolerance", type=float)
    args = vars(parser.parse_args())
    functions = {"draw": draw, "write": write, "compare": compare}
    return functions[args.pop("command")](**args)


if __name__ == "__main__":
    sys.exit(main())
