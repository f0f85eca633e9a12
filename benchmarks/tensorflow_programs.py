"""TensorFlow's XLA programs of our ops, run by JAX's client beside JAX's own.

A machine with a GPU may lack a TensorFlow that uses it. The fused op is a
program of XLA there too, and XLA's programs can be taken along:

    KERAS_BACKEND=tensorflow python -m benchmarks.tensorflow_programs write F
    KERAS_BACKEND=jax python -m benchmarks.tensorflow_programs write F
    python -m benchmarks.tensorflow_programs run F    # needs JAX and NumPy only

`write` needs no GPU: a program for one is the default, `--platform cpu` writes
one for a CPU. `run` prints the largest difference between both programs'
results, divided by the largest element of each array, and the milliseconds of
a call, of many calls back to back that are waited for once.

A program is a training step: outputs of every step, and the gradients of inputs
and weights for a random cotangent.
"""

import argparse
import dataclasses
import math
import pathlib
import re
import sys
import time
import types

import numpy as np

from benchmarks import harness, report, settings

LAYERS = ("LNLSTM", "LNGRU")
CALLS = 20  # back to back


def inputs_of(shapes):
    """Random arrays: inputs, cotangent, and weights of a usual size."""
    rng = np.random.default_rng(0)
    first, cotangent, *weights = (rng.normal(size=shape) for shape in shapes)
    weights = [weight / np.sqrt(weight.shape[0]) for weight in weights]
    return [a.astype("float32") for a in (first, cotangent, *weights)]


def made(name, size):
    """A built layer, and the shapes of a program's arguments."""
    import keras_ln

    batch, steps, features, units = size
    layer = getattr(keras_ln, name)(units, return_sequences=True)
    layer.build((batch, steps, features))
    weights = [tuple(weight.shape) for weight in layer.trainable_variables]
    first = (batch, steps, features), (batch, steps, units)
    return layer, [*first, *weights]


def of_tensorflow(layer, shapes, platform):
    """The program as StableHLO, a text."""
    import tensorflow as tf

    if platform != "cpu":
        # The op asks for other devices.
        gpu = types.SimpleNamespace(device_type="GPU")
        tf.config.get_visible_devices = lambda *_: [gpu]
    variables = [v.value for v in layer.trainable_variables]

    @tf.function(jit_compile=True, autograph=False)
    def step(x, cotangent):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x, training=True)
        gradients = tape.gradient(outputs, [x, *variables], cotangent)
        return [outputs, *gradients]

    x, cotangent = inputs_of(shapes)[:2]
    return step.experimental_get_compiler_ir(x, cotangent)(stage="stablehlo")


def of_jax(layer, shapes, platform):
    """The program as JAX exports it, bytes."""
    import jax

    if platform != "cpu":
        jax.default_backend = lambda: "gpu"

    def step(x, cotangent, *weights):
        def outputs(x, weights):
            return layer.stateless_call(
                weights, layer.non_trainable_variables, x, training=True
            )[0]

        found, gradients = jax.vjp(outputs, x, list(weights))
        of_x, of_weights = gradients(cotangent)
        return found, of_x, *of_weights

    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    exported = jax.export.export(jax.jit(step), platforms=[platform])
    return exported(*arguments).serialize()


def write(options):
    """Writes the programs of Keras' backend, one file each."""
    import keras

    backend = keras.backend.backend()
    for name in LAYERS:
        for size in options.sizes:
            layer, shapes = made(name, settings.parse_size(size))
            path = options.folder / f"{name}-{size}.{backend}"
            if backend == "tensorflow":
                text = of_tensorflow(layer, shapes, options.platform)
                program = text.encode()
            else:
                program = of_jax(layer, shapes, options.platform)
            with report.whole(path) as part:
                part.write_bytes(program)
            print(path)


def with_the_text(exported, text):
    """JAX's program with another one in its place."""
    from jaxlib.mlir.dialects import stablehlo

    # TensorFlow 2.21 writes eight bools to a byte, JAX 0.10 reads one.
    text = re.sub(r'"0x(\w+)"(?=> : tensor<([\dx]+)xi1>)', _a_byte_each, text)
    version = stablehlo.get_current_version()
    module = stablehlo.serialize_portable_artifact_str(text, version)
    return dataclasses.replace(exported, mlir_module_serialized=module)


def _a_byte_each(found):
    count = math.prod(map(int, found[2].split("x")))
    packed = np.frombuffer(bytes.fromhex(found[1]), "uint8")
    if packed.size == count:
        return found[0]
    bits = np.unpackbits(packed, count=count, bitorder="little")
    return f'"0x{bits.tobytes().hex()}"'


def run(options):
    """Compares the programs of a folder; the rows of the table."""
    import jax
    from jax import export

    rows = []
    for path in sorted(options.folder.glob("*.jax")):
        own = export.deserialize(bytearray(path.read_bytes()))
        text = path.with_suffix(".tensorflow").read_text()
        arrays = inputs_of([aval.shape for aval in own.in_avals])
        arrays = [jax.numpy.asarray(array) for array in arrays]
        calls = {
            name: jax.jit(program.call)
            for name, program in (
                ("tensorflow", with_the_text(own, text)),
                ("jax", own),
            )
        }
        results = [call(*arrays) for call in calls.values()]
        # Not Python's max, which may lose a NaN.
        difference = np.max(
            [
                float(abs(a - b).max() / abs(b).max())
                for a, b in zip(*results, strict=True)
            ]
        )
        times = {name: [] for name in calls}
        for _ in range(options.rounds):
            for name, call in calls.items():
                start = time.perf_counter()
                for _ in range(CALLS):
                    result = call(*arrays)
                jax.block_until_ready(result)
                passed = 1e3 * (time.perf_counter() - start)
                times[name].append(passed / CALLS)
        medians = {name: float(np.median(own)) for name, own in times.items()}
        rows.append(
            {
                "program": path.stem,
                "largest_difference": f"{difference:.1e}",
                **{f"{name}_ms": f"{ms:.3f}" for name, ms in medians.items()},
                "device": jax.devices()[0].device_kind,
                "versions": harness.versions(),
            }
        )
        print(*rows[-1].values(), flush=True)
    if not rows:
        sys.exit(f"{options.folder} has no programs: write them first.")
    report.write_csv(rows, report.file_of(options.output, ".csv"))


def main(argv=None):
    """Writes programs, or runs them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tensorflow_programs",
        description=__doc__.partition("\n")[0],
    )
    actions = parser.add_subparsers(dest="action", required=True)
    for action, doc in (
        (write, "write programs with TensorFlow or JAX"),
        (run, "run them with JAX"),
    ):
        own = actions.add_parser(action.__name__, help=doc)
        own.set_defaults(action=action)
        own.add_argument(
            "folder", type=pathlib.Path, help="the folder of the programs"
        )
        if action is write:
            settings.add_sizes(own, "ABC")
            own.add_argument(
                "--platform",
                choices=["cuda", "cpu"],
                default="cuda",
                help="device of the programs (default: %(default)s)",
            )
        else:
            harness.add_number(own, "--rounds", 9, "rounds to measure")
            own.add_argument(
                "--output",
                type=pathlib.Path,
                default=report.RESULTS / "tensorflow_programs",
                help="a file to write, without suffix",
            )
    options = parser.parse_args(argv)
    options.action(options)


if __name__ == "__main__":
    main()
