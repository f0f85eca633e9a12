"""Peak memory of a training step: our op against autodiff through a loop.

    python -m benchmarks.memory

prints, for each size, the peak memory of a step beyond weights and inputs,
with each program in a separate process, and writes
benchmarks/results/memory_BACKEND.csv. The loops run the same cell,
differentiated by the framework: our loop, `keras.layers.RNN`, and JAX' scan.
"""

from benchmarks import harness, report, sequence_layers, settings

PROVIDERS = (
    "keras_ln",
    "cell loop of keras_ln",
    "cell in keras.layers.RNN",
    "LN scan with autodiff",
)


def measured(options):
    """Rows for the CSV, keras_ln first for each size."""
    op = settings.LAYERS[options.layer].ours
    common = {
        "op": op,
        "mode": harness.TRAINING,
        "device": harness.device(options.threads),
        "versions": harness.versions(),
    }
    for text in options.sizes:
        size = settings.parse_size(text)
        ours = None
        for provider in sequence_layers.chosen(options, size):
            peaks = sequence_layers.memory_of(options, size, provider)
            if peaks is None:
                raise SystemExit("This machine does not report peak memory.")
            peak = peaks[harness.TRAINING]
            if ours is None and provider.startswith("keras_ln"):
                ours = peak
            # Of tiny sizes the system may count nothing, or less than before.
            positive = min(ours or 0, peak) > 0
            yield common | {
                "provider": provider,
                "sizes": sequence_layers.label(options, text),
                "peak_memory_mb": peak,
                "ours_to_this": round(ours / peak, 3) if positive else "",
            }


def main(argv=None):
    """Measure, print, write."""
    parser = harness.parser("memory", __doc__, rounds=None)
    sequence_layers.add_options(parser)
    options = parser.parse_args(argv)
    if options.smoke:
        options.sizes = ["3,4,2,5"]
    harness.set_threads(options.threads)
    options.providers = options.providers or PROVIDERS
    import keras

    name = f"memory_{keras.backend.backend()}"
    output = report.target(options, name, adds=True)
    rows = []
    for row in measured(options):
        ratio = row["ours_to_this"]
        print(
            f"{row['sizes']:32} {row['provider']:42}"
            f"{row['peak_memory_mb']:9.1f} MB"
            + (f"  ours/this {ratio:.2f}" if ratio else ""),
            flush=True,
        )
        rows.append(row)
    report.add_to_csv(rows, report.file_of(output, ".csv"))


if __name__ == "__main__":
    main()
