"""Times a recurrent layer of keras_ln against others, normalised and plain.

    python -m benchmarks.sequence_layers

prints a table and adds it to docs/data/speed.csv as run sequence_layers_BACKEND
(on a GPU sequence_layers_BACKEND_gpu), with a plot in benchmarks/results. A
training step is the forward pass and the gradients of all weights and of the
input, the same for every provider; inference is the forward pass. All run in
turn (A B A B ...) in one process on the same threads. The first call, which
compiles, has a separate column.

On a CPU keras_ln is timed with and, if it is installed, also without
keras-ln-kernels. KERAS_BACKEND chooses the framework; JAX' scan and
torch take part if they are installed. On a GPU run the script with
KERAS_BACKEND=jax: the LSTMs of Keras and torch then call cuDNN. There
KERAS_LN_KERNELS=cuda, on JAX and torch, also times the GPU kernels.
"""

import functools
import importlib.util

import numpy as np

from benchmarks import baselines, harness, keras_programs, report
from benchmarks.settings import LAYERS, SIZES, add_sizes, parse_size


def parse(argv):
    """The command line."""
    parser = harness.parser("sequence_layers", __doc__)
    add_options(parser)
    options = parser.parse_args(argv)
    if options.smoke:
        options.sizes, options.rounds = ["3,4,2,5"], 2
    return options


def add_options(parser):
    """The options that say which programs of which layer to measure."""
    harness.add_dtype(parser)
    add_sizes(parser, SIZES)
    parser.add_argument(
        "--layer",
        choices=LAYERS,
        default="lstm",
        help="layer to time (default: %(default)s)",
    )
    parser.add_argument(
        "--return-sequences",
        action="store_true",
        help="a loss on every step, not only on the last one",
    )
    parser.add_argument(
        "--recurrent-dropout",
        type=float,
        default=0.0,
        help="share of h to drop, in all layers",
    )
    parser.add_argument(
        "--projection",
        type=int,
        help="size of h, of an LSTM, in keras_ln and torch.nn (default: units)",
    )
    parser.add_argument(
        "--providers", nargs="+", help="only providers with these prefixes"
    )


def programs(options, size):
    """{provider: program}, keras_ln first."""
    import keras

    import keras_ln

    names = LAYERS[options.layer]
    policy = options.dtype
    if policy in ("float16", "bfloat16"):
        policy = f"mixed_{policy}"
    shape = size[:3]
    rng = np.random.default_rng(0)
    width = options.projection or size.units
    outputs = (size.batch, size.time, width)
    if not options.return_sequences:
        outputs = (size.batch, width)
    own = {"projection": width} if options.projection else {}
    arrays = [rng.normal(size=s).astype("float32") for s in (shape, outputs)]

    common = {"units": size.units, "seed": 1, "dtype": policy}
    common["recurrent_dropout"] = options.recurrent_dropout
    returned = {"return_sequences": options.return_sequences}

    def built(layer):
        layer.build(shape)
        return layer

    def make(layer_class, **arguments):
        return built(layer_class(**{**common, **returned, **arguments}))

    def loop_over(cell_class, **arguments):
        cell = cell_class(**common, **arguments)
        return built(keras.layers.RNN(cell, dtype=policy, **returned))

    def of(name, make_layer, **modes):
        return keras_programs.layer_programs(
            name, make_layer, arrays, options.dtype, **modes
        )

    ours = functools.partial(make, getattr(keras_ln, names.ours), **own)
    fused = functools.partial(ours, use_fused=True)

    # XLA compiles our op in graph mode too, so one mode is enough.
    found = {}
    by_kernels = ("native", "cuda")
    if keras_ln.ops.implementation(fused())[0] in by_kernels:
        found |= of("keras_ln (kernels)", fused, modes=("graph",))
        if options.layer in ("lstm", "gru"):
            sites = ("sum", "state")[: 2 if options.layer == "lstm" else 1]
            summed = functools.partial(fused, normalize=sites)
            if keras_ln.ops.implementation(summed())[0] in by_kernels:
                name = "keras_ln (kernels), sum"
                found |= of(name, summed, modes=("graph",))
    found |= keras_programs.without_kernels(
        of("keras_ln", fused, modes=("graph",))
    )
    if options.recurrent_dropout:
        plain = functools.partial(fused, recurrent_dropout=0.0)
        found |= of("keras_ln without dropout", plain, modes=("graph",))
    theirs = getattr(keras.layers, names.keras)
    if not own:
        found |= of(f"keras {names.keras}", functools.partial(make, theirs))
    if keras.backend.backend() == "torch" and not own:
        # On torch the layer's gradient fills (B, T, nU) with zeros at every
        # step, so that the loop over the cell is the faster plain layer.
        found |= of(
            f"keras {names.keras} cell in RNN",
            lambda: loop_over(getattr(keras.layers, f"{names.keras}Cell")),
        )
    loop = functools.partial(ours, use_fused=False)
    found |= of("cell loop of keras_ln", loop)
    if names.cell:
        found |= of(
            "cell in keras.layers.RNN",
            lambda: loop_over(getattr(keras_ln, names.cell), **own),
        )
    found |= _others(options, size, arrays)
    return found


def _others(options, size, arrays):
    """The providers other than Keras layers."""
    names = LAYERS[options.layer]
    settings = (size[:3], size.units, options.return_sequences)
    found = {}
    whole = options.layer == "lstm" and not options.projection
    if whole and importlib.util.find_spec("jax"):

        def autodiff():
            call, weights = baselines.jax_scan(*settings)
            return keras_programs.function_steps(
                call, weights, arrays, options.dtype
            )

        found["LN scan with autodiff, jax"] = autodiff
    if not importlib.util.find_spec("torch"):
        return found

    def of_torch(make, *arguments):
        baselines.set_up_torch(options.threads)
        call, weights = make(*arguments, *settings, options.dtype)
        return keras_programs.module_steps(call, weights, arrays, options.dtype)

    found[f"torch {names.torch}"] = lambda: of_torch(
        baselines.torch_plain, names.torch, options.projection
    )
    if whole:
        found["torch LN cell, TorchScript"] = lambda: of_torch(
            baselines.torch_script
        )
    return found


def chosen(options, size):
    """The programs that `--providers` names."""
    found = programs(options, size)
    if options.providers is None:
        return found
    wanted = {
        name: program
        for name, program in found.items()
        if name.startswith(tuple(options.providers))
    }
    if not wanted:
        raise SystemExit(f"--providers must match any of: {', '.join(found)}")
    return wanted


def label(options, text):
    """Size, dtype and all options that differ from the default."""
    size = parse_size(text)
    name = f"{text} " if text in SIZES else ""
    name += "x".join(map(str, size)) + f" {options.dtype}"
    if options.return_sequences:
        name += ", every step"
    if options.recurrent_dropout:
        name += f", dropout {options.recurrent_dropout:g}"
    if options.projection:
        name += f", projection {options.projection}"
    return name


def main(argv=None):
    """Measure, print, write."""
    options = parse(argv)
    harness.set_threads(options.threads)
    import keras

    run = f"sequence_layers_{keras.backend.backend()}"
    if harness.on_gpu():
        run += "_gpu"
    output = report.target(options)
    for text in options.sizes:
        size = parse_size(text)
        name = label(options, text)
        print(f"{LAYERS[options.layer].ours}, {name}", flush=True)
        rows = harness.measure(
            LAYERS[options.layer].ours, name, chosen(options, size), options
        )
        report.print_table(rows)
        report.write(rows, run, output)


if __name__ == "__main__":
    main()
