"""The cost of sequences of many lengths: two epochs over a bucketed text.

    python -m benchmarks.variable_lengths

trains a classifier of random sentences with `model.fit`. Each batch has one of
60 lengths, as `tf.data.Dataset.bucket_by_sequence_length` would make them.
The providers run in turn, in separate processes, because a process compiles
every new length in its first epoch; XLA's compilations are counted in the
frameworks' logs. If keras-ln-kernels is installed, our layer runs with and
without it. The script prints the seconds of both epochs and their ratio to the
same layer with `use_fused=False`, and writes
benchmarks/results/variable_lengths_BACKEND.csv and a plot beside it.
"""

import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import time

from benchmarks import harness, report

KERNELS = "keras_ln (kernels)"
LOOP = "keras_ln, use_fused=False"
COLOURS = {
    KERNELS: "tab:green",
    "keras_ln": "tab:blue",
    LOOP: "tab:orange",
    "keras LSTM": "0.7",
}
LOGGED = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "device_compilation_profiler=1",
    "JAX_LOG_COMPILES": "1",
}
COMPILED = re.compile(r"Compiled \S+ \d+ times|Finished XLA compilation of")
EPOCH_ENDS = "==> end of an epoch"
COLUMNS = (
    *("provider", "epoch", "seconds", "of_the_loop", "compilations"),
    *("lengths", "sizes", "device", "versions"),
)


def layer_of(provider, units):
    """The recurrent layer of a provider."""
    import keras

    import keras_ln

    if provider == "keras LSTM":
        return keras.layers.LSTM(units)
    use_fused = False if provider == LOOP else "auto"
    return keras_ln.LNLSTM(units, use_fused=use_fused)


def train(provider, options):
    """Seconds of two epochs in this process."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    words, units, count = 2000, options.units, options.lengths
    lengths = rng.permutation(np.arange(count) + count // 4 + 1)

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return count

        def __getitem__(self, index):
            return x[index], y[index]

    x = [rng.integers(1, words, (options.batch, n)) for n in lengths]
    y = [rng.integers(0, 2, options.batch) for _ in lengths]
    seconds = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.start = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            seconds.append(time.perf_counter() - self.start)
            print(EPOCH_ENDS, file=sys.stderr, flush=True)

    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(words, units, mask_zero=True),
            layer_of(provider, units),
            keras.layers.Dense(2),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    model.fit(Batches(), epochs=2, shuffle=False, verbose=0, callbacks=Clock())
    return seconds


def providers():
    """All providers, without the kernels if they are not installed."""
    import keras_ln

    used, _ = keras_ln.ops.implementation(keras_ln.LNLSTM(4))
    return [p for p in COLOURS if p != KERNELS or used == "native"]


def run(provider, arguments):
    """(seconds, compilations) of each epoch, in a new process."""
    environment = os.environ | LOGGED
    if provider != KERNELS:
        environment["KERAS_LN_KERNELS"] = "0"
    command = [sys.executable, "-m", "benchmarks.variable_lengths", *arguments]
    done = subprocess.run(
        [*command, "--train", provider],
        cwd=harness.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    epochs = done.stderr.split(EPOCH_ENDS)[:2]
    compilations = [len(COMPILED.findall(epoch)) for epoch in epochs]
    seconds = json.loads(done.stdout.splitlines()[-1])
    return list(zip(seconds, compilations, strict=True))


def measured(options, arguments):
    """Rows for the CSV: medians of all rounds."""
    runs = {provider: [] for provider in providers()}
    for _ in range(options.rounds):
        for provider, own in runs.items():
            own.append(run(provider, arguments))
    rows = []
    sizes = f"B {options.batch}, D and U {options.units}"
    for epoch in range(2):
        seconds = {
            provider: statistics.median(one[epoch][0] for one in own)
            for provider, own in runs.items()
        }
        for provider, own in runs.items():
            share = seconds[provider] / seconds[LOOP]
            values = [provider, epoch + 1, round(seconds[provider], 2)]
            values += [round(share, 2), own[-1][epoch][1], options.lengths]
            values += [sizes, harness.device(options.threads)]
            values += [harness.versions()]
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def plot(rows, path):
    """Seconds of both epochs, a group of bars for each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    drawn = list(dict.fromkeys(row["provider"] for row in rows))
    height = 0.8 / len(drawn)
    for k, provider in enumerate(drawn):
        own = [row for row in rows if row["provider"] == provider]
        places = [int(row["epoch"]) - 1 + k * height for row in own]
        bars = axes.barh(
            places,
            [float(row["seconds"]) for row in own],
            height,
            label=provider,
            color=COLOURS[provider],
        )
        axes.bar_label(
            bars, [f"{r['compilations']} compilations" for r in own], padding=3
        )
    middle = 0.4 - height / 2
    axes.set_yticks([middle, 1 + middle], ["first epoch", "second epoch"])
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.set(
        xlabel=f"seconds, {rows[0]['lengths']} lengths, {rows[0]['sizes']}"
    )
    axes.legend(fontsize="small")
    report.save(figure, path)


def main(argv=None):
    """Measure, print, write."""
    argv = sys.argv[1:] if argv is None else argv
    parser = harness.parser("variable_lengths", __doc__, rounds=3)
    harness.add_number(parser, "--lengths", 60, "number of different lengths")
    harness.add_number(parser, "--batch", 32, "rows of a batch")
    harness.add_number(parser, "--units", 128, "units of the layer")
    parser.add_argument("--train", choices=COLOURS, help="one run, timed")
    options = parser.parse_args(argv)
    if options.smoke:
        options.rounds, options.lengths = 1, 4
        options.batch, options.units = 2, 4
    harness.set_threads(options.threads)
    if options.train:
        print(json.dumps(train(options.train, options)))
        return
    import keras

    rows = measured(options, argv)
    for row in rows:
        print(
            f"epoch {row['epoch']}  {row['provider']:26} {row['seconds']:8.2f}"
            f" s  {row['of_the_loop']:5.2f} of the loop's, "
            f"{row['compilations']} compilations"
        )
    name = f"variable_lengths_{keras.backend.backend()}"
    output = report.target(options, name)
    report.write_csv(rows, report.file_of(output, ".csv"))
    if importlib.util.find_spec("matplotlib"):
        plot(rows, report.file_of(output, ".png"))


if __name__ == "__main__":
    main()
