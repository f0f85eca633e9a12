"""How a training step's time grows with the number of steps and the batch.

    python -m benchmarks.scaling

times T from 64 to 4096 at one batch size and B from 64 to 4096 at one number
of steps, prints the times and the exponent of the power law through them,
and writes benchmarks/results/scaling_BACKEND.csv and a plot beside it.
"""

import importlib.util

import numpy as np

from benchmarks import harness, report, sequence_layers

LENGTHS = (64, 256, 1024, 4096)
PROVIDERS = ("keras_ln, ", "keras LSTM", "cell loop of keras_ln")


def sizes(options):
    """{name of what varies: the sizes}."""
    few, lengths = (8, LENGTHS) if not options.smoke else (2, (2, 4, 6))
    units = options.units
    return {
        "T": [sequence_layers.Size(few, n, units, units) for n in lengths],
        "B": [sequence_layers.Size(n, few, units, units) for n in lengths],
    }


def exponent(lengths, times):
    """The slope in logarithms: 1 where the time grows linearly."""
    return float(np.polyfit(np.log(lengths), np.log(times), 1)[0])


def measured(options):
    """Rows for the CSV."""
    op = sequence_layers.LAYERS[options.layer].ours
    for varied, own in sizes(options).items():
        for size in own:
            programs = sequence_layers.chosen(options, size)
            label = "x".join(map(str, size)) + f" {options.dtype}"
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
    figure.savefig(path)


def main(argv=None):
    """Measure, print, write."""
    options = sequence_layers.parse(
        argv, "scaling", __doc__, own={"--units": {"type": int, "default": 128}}
    )
    harness.set_threads(options.threads)
    options.providers = options.providers or PROVIDERS
    import keras

    rows = list(measured(options))
    for (varied, provider), (lengths, times) in curves(rows).items():
        print(f"{varied} ^ {exponent(lengths, times):.2f}  {provider}")
    output = options.output or report.RESULTS / (
        f"scaling_{keras.backend.backend()}"
    )
    report.write_csv(rows, output.with_suffix(".csv"))
    if importlib.util.find_spec("matplotlib"):
        plot(rows, output.with_suffix(".png"))


if __name__ == "__main__":
    main()
