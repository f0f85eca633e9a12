"""Models of Keras' guides as they are, and with `keras_ln.with_fast_rnn`.

    python -m benchmarks.plain_models

trains and predicts with five models, by `fit` and `predict` on generated data
of the guides' shapes, prints the times of one call of each and adds
them to docs/data/speed.csv, with a plot in benchmarks/results. A "training
step" is one epoch of `fit`, "inference" one `predict`, of a few batches each.
On torch the models also run with `torch.nn.LSTM` and `GRU`, which ignore the
mask of the one model that has one.
"""

import types

import numpy as np

from benchmarks import harness, report
from benchmarks.keras_programs import without_kernels

BATCHES = 2


def sentiment(make, n):
    """Bidirectional LSTM on IMDB."""
    import keras

    words, steps, wide, units = n(20_000), n(200), n(128), n(64)
    x = keras.Input((steps,), dtype="int32")
    y = keras.layers.Embedding(words, wide)(x)
    y = make.both(units, wide, return_sequences=True)(y)
    y = make.both(units, 2 * units)(y)
    y = keras.layers.Dense(1, activation="sigmoid")(y)
    return keras.Model(x, y), 32, [("words", words, steps)], 2


def characters(make, n):
    """Character-level text generation with LSTM."""
    import keras

    letters, steps, units = n(56), n(40), n(128)
    x = keras.Input((steps, letters))
    y = make.LSTM(units, letters)(x)
    y = keras.layers.Dense(letters, activation="softmax")(y)
    return keras.Model(x, y), 128, [("numbers", letters, steps)], letters


def weather(make, n):
    """Timeseries forecasting for weather prediction."""
    import keras

    features, steps, units = n(7), n(120), n(32)
    x = keras.Input((steps, features))
    y = keras.layers.Dense(1)(make.LSTM(units, features)(x))
    return keras.Model(x, y), 256, [("numbers", features, steps)], None


def translation(make, n):
    """Character-level recurrent sequence-to-sequence model."""
    import keras

    source, target, units = n(71), n(93), n(256)
    x, z = keras.Input((n(16), source)), keras.Input((n(59), target))
    _, *states = make.LSTM(units, source, return_state=True)(x)
    decoder = make.LSTM(units, target, return_sequences=True)
    y = decoder(z, initial_state=states)
    y = keras.layers.Dense(target, activation="softmax")(y)
    kinds = [("numbers", source, n(16)), ("numbers", target, n(59))]
    return keras.Model([x, z], y), 64, kinds, (target, n(59))


def classifier(make, n):
    """GRU on padded sentences, as in the guide to masking."""
    import keras

    words, steps, units = n(5000), n(80), n(64)
    x = keras.Input((steps,), dtype="int32")
    y = keras.layers.Embedding(words, units, mask_zero=True)(x)
    y = keras.layers.Dense(4, activation="softmax")(make.GRU(units, units)(y))
    return keras.Model(x, y), 64, [("words", words, steps)], 4


MODELS = (sentiment, characters, weather, translation, classifier)


def keras_layers():
    """Keras' own, which do not need the number of features."""
    import keras

    def lstm(units, features, **options):
        return keras.layers.LSTM(units, **options)

    return types.SimpleNamespace(
        LSTM=lstm,
        GRU=lambda units, features: keras.layers.GRU(units),
        both=lambda units, features, **options: keras.layers.Bidirectional(
            lstm(units, features, **options)
        ),
    )


def torch_layers():
    """torch's, as layers of Keras."""
    import keras
    import torch

    class TorchRNN(keras.layers.TorchModuleWrapper):
        def __init__(self, module, return_sequences=False, return_state=False):
            super().__init__(module)
            self.supports_masking = True
            self.options = return_sequences, return_state
            self.width = module.hidden_size * (1 + module.bidirectional)

        def call(self, x, initial_state=None, training=None):
            given = initial_state and tuple(s[None] for s in initial_state)
            y, states = self.module(x, given)
            every, with_state = self.options
            y = y if every else y[:, -1]
            return [y, *(s[0] for s in states)] if with_state else y

        def compute_mask(self, inputs, mask=None):
            return None

        def compute_output_shape(self, shape, **others):
            every, with_state = self.options
            last = (shape[0], self.width)
            y = (*shape[:2], self.width) if every else last
            return [y, last, last] if with_state else y

    def lstm(units, features, bidirectional=False, **options):
        module = torch.nn.LSTM(
            features, units, batch_first=True, bidirectional=bidirectional
        )
        return TorchRNN(module, **options)

    return types.SimpleNamespace(
        LSTM=lstm,
        GRU=lambda units, features: TorchRNN(
            torch.nn.GRU(features, units, batch_first=True)
        ),
        both=lambda *args, **options: lstm(
            *args, bidirectional=True, **options
        ),
    )


def data_of(batch, kinds, classes):
    """Inputs and targets of a few batches; sentences end in zeros.

    Targets are `classes` numbers, of each of so many steps, or real for None.
    """
    rng, rows = np.random.default_rng(0), BATCHES * batch
    inputs = []
    for kind, width, steps in kinds:
        if kind == "words":
            x = rng.integers(1, width, (rows, steps), dtype="int32")
            lengths = rng.integers(1, steps + 1, (rows, 1))
            inputs.append(np.where(np.arange(steps) < lengths, x, 0))
        else:
            x = rng.normal(size=(rows, steps, width))
            inputs.append(x.astype("float32"))
    if len(inputs) == 1:
        inputs = inputs[0]
    if classes is None:
        return inputs, rng.normal(size=rows).astype("float32")
    shape = (rows,)
    if isinstance(classes, tuple):
        classes, steps = classes
        shape = rows, steps
    return inputs, rng.integers(0, classes, shape)


def steps_of(build, options, make, fast=False, jit_compile="auto"):
    """`fit` and `predict` of one model, ready to be timed."""
    import keras

    import keras_ln

    smoke = options.smoke
    model, batch, kinds, classes = build(
        make, (lambda size: min(size, 3)) if smoke else lambda size: size
    )
    batch = 2 if smoke else batch
    x, y = data_of(batch, kinds, classes)
    if fast:
        model = keras_ln.with_fast_rnn(model)
    loss = {1: "binary_crossentropy"}.get(
        model.output.shape[-1], "sparse_categorical_crossentropy"
    )
    model.compile(
        keras.optimizers.Adam(1e-3),
        "mse" if classes is None else loss,
        jit_compile=jit_compile,
    )
    return {
        harness.TRAINING: lambda: model.fit(
            x, y, batch, shuffle=False, verbose=0
        ),
        harness.INFERENCE: lambda: model.predict(x, batch, verbose=0),
    }


def programs(build, options):
    """{provider: program}, keras_ln first."""
    import keras

    import keras_ln

    backend, theirs = keras.backend.backend(), keras_layers()

    def fast():
        return steps_of(build, options, theirs, fast=True)

    found = {}
    if keras_ln.ops.implementation(keras_ln.LNLSTM(4))[0] == "native":
        found[f"keras_ln (kernels), {backend}"] = fast
    found |= without_kernels({f"keras_ln, {backend}": fast})
    modes = {f"keras, {backend}": "auto"}
    if backend == "tensorflow":
        modes = {f"{name} graph": False for name in modes} | {
            f"{name} XLA": True for name in modes
        }
    for name, jit in modes.items():
        found[name] = lambda jit=jit: steps_of(
            build, options, theirs, jit_compile=jit
        )
    if backend == "torch":
        found["torch.nn, torch"] = lambda: steps_of(
            build, options, torch_layers()
        )
    return found


def main(argv=None):
    """Measure, print, write."""
    parser = harness.parser("plain_models", __doc__)
    names = [build.__name__ for build in MODELS]
    parser.add_argument(
        "--models",
        nargs="+",
        choices=names,
        default=names,
        help="models to time (default: all)",
    )
    options = parser.parse_args(argv)
    if options.smoke:
        options.rounds = 1
    harness.set_threads(options.threads)
    import keras

    output = report.target(options)
    rows = []
    for build in MODELS:
        if build.__name__ not in options.models:
            continue
        new = harness.measure(
            build.__name__,
            f"{BATCHES} batches",
            programs(build, options),
            options,
        )
        report.print_table(new)
        rows += new
    report.write(rows, f"plain_models_{keras.backend.backend()}", output)


if __name__ == "__main__":
    main()
