"""The growth of time with steps and batch, and its fall with threads.

    python -m benchmarks.scaling

times T from 64 to 4096 at one batch size and B from 64 to 4096 at one number
of steps, prints the times and the exponent of the power law through them,
and writes benchmarks/results/scaling_BACKEND.csv and a plot beside it.

    python -m benchmarks.scaling --threads 1 2 4 8

times the CPU kernels, without a framework, with each number of threads and
writes benchmarks/results/scaling_threads.csv. Beside each time is its lower
bound, the larger of two times: a thread's share of the multiplications, at the
rate of one thread in its cache, and its share of reading the recurrent kernel.
"""

import functools
import importlib.util

import numpy as np

from benchmarks import harness, report, sequence_layers, settings

LENGTHS = (64, 256, 1024, 4096)
# Options of one number of threads, and of several.
OF_LAYERS = (
    *("units", "layer", "dtype", "providers", "return_sequences"),
    *("recurrent_dropout", "zoneout", "reset"),
)
OF_KERNELS = ("sizes",)
GAINS = ("kernel_gamma", "recurrent_gamma", "state_gamma")


def sizes(options):
    """{name of the varied size: the sizes}."""
    few, lengths = (8, LENGTHS) if not options.smoke else (2, (2, 4, 6))
    units = options.units
    return {
        "T": [settings.Size(few, n, units, units) for n in lengths],
        "B": [settings.Size(n, few, units, units) for n in lengths],
    }


def exponent(lengths, times):
    """The slope in logarithms: 1 if the time grows linearly."""
    return float(np.polyfit(np.log(lengths), np.log(times), 1)[0])


def measured(options):
    """Rows for the CSV."""
    op = settings.LAYERS[options.layer].ours
    for varied, own in sizes(options).items():
        for size in own:
            programs = sequence_layers.chosen(options, size)
            label = sequence_layers.label(options, ",".join(map(str, size)))
            rows = harness.measure(op, label, programs, options)
            print(f"{op}, {label}")
            report.print_table(
                [row for row in rows if row["mode"] == harness.TRAINING]
            )
            for row in rows:
                yield {"varied": varied, **row}


def curves(rows):
    """{(varied, provider): (lengths, times in ms)} of training steps."""
    found = {}
    for row in rows:
        if row["mode"] == harness.TRAINING:
            key = row["varied"], row["provider"]
            lengths, times = found.setdefault(key, ([], []))
            index = {"B": 0, "T": 1}[row["varied"]]
            numbers = row["sizes"].split()[0].split("x")
            lengths.append(int(numbers[index]))
            times.append(float(row["p50_ms"]))
    return found


def plot(rows, path):
    """Time against T and against B, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = dict(zip("TB", figure.subplots(1, 2), strict=True))
    for (varied, provider), (lengths, times) in curves(rows).items():
        slope = exponent(lengths, times)
        panels[varied].loglog(
            lengths, times, "o-", label=f"{provider} ({slope:.2f})"
        )
    for varied, panel in panels.items():
        panel.set(
            xlabel={"T": "time steps T", "B": "batch B"}[varied],
            ylabel="training step, ms (median)",
        )
        panel.legend(title="exponent in brackets", fontsize="small")
    report.save(figure, path)


def kernel_steps(size):
    """`{mode: step(threads, openmp)}` of an LN-LSTM without a framework."""
    from keras_ln_kernels import Call, options, run

    batch, _, features, units = size
    gates = {name: (4 * units,) for name in ("bias", *GAINS[:2])}
    shapes = {
        "x": size[:3],
        "kernel": (features, 4 * units),
        "recurrent_kernel": (units, 4 * units),
        **gates,
        GAINS[2]: (units,),
    }
    states = ("final_h", "final_c")
    infer = Call(
        "lstm", "float32", tuple(shapes), states, options(epsilon=1e-5)
    )
    train = infer._replace(results=(*states, "residuals"))
    back = infer._replace(
        arguments=(*shapes, "residuals", "d_final_h"),
        results=tuple(f"d_{name}" for name in shapes),
    )
    sizes = infer.sizes(shapes)
    rng = np.random.default_rng(0)
    arrays = {
        name: (rng.normal(size=shape) * shape[0] ** -0.5).astype("float32")
        for name, shape in shapes.items()
    }
    arrays["d_final_h"] = np.ones((batch, units), "float32")
    for name in (*train.results, *back.results):
        dtype = "uint8" if name == "residuals" else "float32"
        arrays[name] = np.empty(train.shape(name, sizes), dtype)

    def step(calls, threads, openmp=None):
        # Looked up here, so that the arrays live as long as the steps.
        places = {name: a.ctypes.data for name, a in arrays.items()}
        for call in calls:
            run(call, places, sizes, threads, openmp)

    return {
        harness.TRAINING: functools.partial(step, (train, back)),
        harness.INFERENCE: functools.partial(step, (infer,)),
    }


def milliseconds_of_product(rows, depth, columns, times=20):
    """Of a product by one thread, a matrix packed for it."""
    from keras_ln_kernels.library import library

    arrays = [
        np.ones(shape, "float32")
        for shape in ((rows, depth), (depth, columns), (rows, columns))
    ]
    places = [a.ctypes.data for a in arrays]
    product = functools.partial(
        library().kln_product, 0, rows, depth, columns, *places
    )
    # The difference leaves the packing out.
    return min(
        (
            harness.milliseconds(lambda: product(1 + times))
            - harness.milliseconds(lambda: product(1))
        )
        / times
        for _ in range(5)
    )


def bounds(size, mode, threads):
    """MFLOP and MB of R per thread and step, and the least ms in all."""
    batch, steps, features, units = size
    passes = {harness.TRAINING: 3, harness.INFERENCE: 1}[mode]
    mflop = passes * 8 * batch * (features + units) * units / 1e6 / threads
    rate = 2 * 512 * 256 * 1024 / 1e6 / milliseconds_of_product(512, 256, 1024)
    # The backward pass reads R once per step too, its gradient less often.
    reads = min(passes, 2)
    read = milliseconds_of_product(1, units, 4 * units)
    share = 16 * units**2 / 1e6 / threads
    return (
        mflop,
        reads * share,
        steps * max(mflop / rate, reads * read / threads),
    )


def measured_by_threads(options):
    """Rows for the CSV, with all numbers of threads in turn."""
    for text in options.sizes:
        size = settings.parse_size(text)
        steps = {
            (mode, threads): functools.partial(step, threads)
            for mode, step in kernel_steps(size).items()
            for threads in options.threads
        }
        _, times = harness.in_turn(steps, options.rounds)
        for (mode, threads), own in times.items():
            p20, p50, p80 = map(float, np.percentile(own, [20, 50, 80]))
            mflop, megabytes, bound = bounds(size, mode, threads)
            row = {
                "sizes": sequence_layers.label(options, text),
                "mode": mode,
                "threads": threads,
                "mflop_a_step": round(mflop, 3),
                "mb_a_step": round(megabytes, 3),
                "bound_ms": round(bound, 3),
                "p20_ms": round(p20, 3),
                "p50_ms": round(p50, 3),
                "p80_ms": round(p80, 3),
                "device": harness.device(threads),
            }
            print(
                f"{row['sizes']:28} {mode:14} {threads:3} threads "
                f"{p50:9.2f} ms ({p20:.2f} to {p80:.2f}), at least "
                f"{bound:.2f}: {mflop:.2f} MFLOP and {megabytes:.2f} MB of R "
                "a thread and step",
                flush=True,
            )
            yield row


def main(argv=None):
    """Measure, print, write."""
    parser = harness.parser("scaling", __doc__)
    sequence_layers.add_options(parser)
    harness.add_number(parser, "--units", 128, "features and units")
    parser.add_argument(
        "--threads",
        type=harness.positive,
        nargs="+",
        default=[2],
        help="threads; several numbers time only the kernels (default: 2)",
    )
    options = parser.parse_args(argv)
    several = len(options.threads) > 1
    harness.refuse(
        parser,
        options,
        OF_LAYERS if several else OF_KERNELS,
        f"with {'several numbers' if several else 'one number'} of threads",
    )
    if options.smoke:
        options.sizes, options.rounds = ["3,4,2,5"], 2
    if several:
        harness.set_threads(max(options.threads))
        output = report.target(options, "scaling_threads")
        rows = list(measured_by_threads(options))
        report.write_csv(rows, report.file_of(output, ".csv"))
        return
    (options.threads,) = options.threads
    harness.set_threads(options.threads)
    options.providers = options.providers or (
        "keras_ln, ",
        f"keras {settings.LAYERS[options.layer].keras}",
        "cell loop of keras_ln",
    )
    import keras

    rows = list(measured(options))
    for (varied, provider), (lengths, times) in curves(rows).items():
        print(f"{varied} ^ {exponent(lengths, times):.2f}  {provider}")
    output = report.target(options, f"scaling_{keras.backend.backend()}")
    report.write_csv(rows, report.file_of(output, ".csv"))
    if importlib.util.find_spec("matplotlib"):
        plot(rows, report.file_of(output, ".png"))


if __name__ == "__main__":
    main()
