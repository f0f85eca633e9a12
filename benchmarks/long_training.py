"""Whether a long training leaks memory or is traced again.

    KERAS_BACKEND=jax python -m benchmarks.long_training

trains 10,000 steps, prints the resident memory every 100 of them and how often
the model was traced, adds both to benchmarks/results/long_training.csv, and
draws the figure beside it.
"""

import gc
import importlib.util
import sys

import numpy as np

from benchmarks import harness, report

BATCH, T, D, U = 8, 6, 4, 16


def train(steps, every, units=U):
    """Trains a model of three layers; a sample every `every` steps.

    Returns:
        Dictionaries of `step`, `traces` (how often Python ran the model's
        call: at every step if nothing is compiled) and `resident_mb` (None if
        the system does not say).
    """
    import keras

    import keras_ln

    class Counter(keras.layers.Layer):
        calls = 0

        def call(self, x):
            type(self).calls += 1
            return x

    class Sampler(keras.callbacks.Callback):
        samples = []
        step = 0

        def on_train_batch_end(self, batch, logs=None):
            self.step += 1
            if self.step % every == 0:
                gc.collect()
                self.samples.append(
                    {
                        "step": self.step,
                        "traces": Counter.calls,
                        "resident_mb": harness.resident("VmRSS"),
                    }
                )

    model = keras.Sequential(
        [
            keras.Input((T, D)),
            Counter(),
            keras_ln.LNLSTM(
                units, dropout=0.1, recurrent_dropout=0.1, return_sequences=True
            ),
            keras_ln.LayerNormalization(),
            keras_ln.BNLSTM(units, max_steps=T),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    rng = np.random.default_rng(0)
    epochs = max(1, steps // 500)
    rows = BATCH * (steps // epochs)
    x = rng.normal(size=(rows, T, D)).astype("float32")
    y = x[:, :, 0].sum(axis=1, keepdims=True)
    sampler = Sampler()
    model.fit(x, y, BATCH, epochs=epochs, verbose=0, callbacks=[sampler])
    return sampler.samples


def growth(samples, warm_up=0.2):
    """MB per 10,000 steps, from a line through the samples after warm-up."""
    late = samples[int(warm_up * len(samples)) :]
    steps = [float(sample["step"]) for sample in late]
    memory = [float(sample["resident_mb"]) for sample in late]
    return 1e4 * float(np.polyfit(steps, memory, 1)[0])


def plot(rows, target):
    """Resident memory over the steps, a line for each run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    panel = figure.subplots()
    for run in dict.fromkeys(row["run"] for row in rows):
        samples = [row for row in rows if row["run"] == run]
        steps = [int(sample["step"]) for sample in samples]
        memory = [float(sample["resident_mb"]) for sample in samples]
        label = f"{run} ({growth(samples):+.1f} MB per 10,000 steps)"
        panel.plot(steps, memory, label=label)
    panel.set(xlabel="training steps", ylabel="resident memory in MB")
    panel.set_ylim(bottom=0)
    panel.legend(loc="lower right")
    report.save(figure, target, dpi=120)


def main(argv=None):
    """Train, print, write, plot."""
    parser = harness.parser("long_training", __doc__, rounds=None)
    options = parser.parse_args(argv)
    harness.set_threads(options.threads)
    import keras

    import keras_ln

    path, key = report.RESULTS / "long_training.csv", ("run", "step")
    output = report.target(options, path, key)
    run = keras.backend.backend()
    if keras_ln.ops.implementation(keras_ln.LNLSTM(4))[0] == "native":
        run = f"kernels_{run}"
    steps, every = (20, 5) if options.smoke else (10_000, 100)
    samples = train(steps, every)
    for sample in samples:
        print(sample, flush=True)
    if samples[0]["resident_mb"] is None:
        sys.exit("This machine does not report resident memory.")
    print(f"{growth(samples):+.2f} MB per 10,000 steps")
    facts = {
        "device": harness.device(options.threads),
        "versions": harness.versions(),
    }
    rows = [sample | facts for sample in samples]
    rows = report.add(rows, run, output, key)
    if importlib.util.find_spec("matplotlib"):
        plot(rows, output.with_suffix(".png"))


if __name__ == "__main__":
    main()
