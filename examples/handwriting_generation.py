"""Handwriting: section 6.5 and figure 5 of the paper.

Three LSTMs, one of which moves a window over the text, learn to predict the pen
and write (Graves, 2013, section 5):

    none   LSTM
    layer  LSTM with layer normalisation

The paper's claim: both end at about the same negative log-likelihood, and layer
normalisation gets there sooner.
"""

from common import ending, flags
from common.errors import InputError
from common.report import Panel

KINDS = ("none", "layer")
TEXTS = ("the lord", "And God", "of Egypt", "his son")
PRESETS = {  # quick, paper, --smoke
    # "tfds" raises an error with instructions.
    "data": ("embedded", "tfds", "embedded"),
    "epochs": (15, 50, 2),
    "batch_size": (32, 8),
    "units": (64, 400, 8),
    "learning_rate": (3e-3, 1e-3),
    "length": (500, 500, 20),
    "text": (TEXTS, TEXTS),
    "bias": (1.0, 1.0),
}
FLAGS = (
    flags.count("length", "points after which a line is cut"),
    flags.Flag("text", "texts to write", nargs="+", metavar="STRING"),
    flags.number(
        "bias",
        "0 for samples of the learned density, more for clearer ones",
        flags.nonnegative,
    ),
    flags.FORGET_STEPS,
)
NLL = Panel("validation NLL (nats per point)", "val_nll")
PANELS = (Panel("training NLL (nats per point)", "nll"), NLL)
COLUMNS = {"training NLL": "train_nll", "test NLL": "test_nll"}


def main(argv=None):
    args = flags.parse(*(__file__, __doc__, KINDS, PRESETS, argv), own=FLAGS)

    import handwriting_generation_model as parts
    import keras
    import numpy as np
    from common import plotting, report, runs
    from common.datasets import strokes

    for text in args.text:
        if not text or set(text) - set(strokes.ALPHABET):
            raise InputError(
                f"--text: expected characters of '{strokes.ALPHABET}', "
                f"received {text!r}"
            )
    train, validation, test = strokes.load(args)
    count, steps, _ = train.points.shape
    for run in runs.of(args, examples=count):
        with run:
            model = parts.build_model(
                *(run.norm, run.units, steps, train.symbols.shape[1]),
                # The window starts at the mean pace of the writers.
                pace=float(np.count_nonzero(train.symbols) / train.valid.sum()),
                gain=run.gain,
                forget_steps=run.forget_steps,
            )
            nll = keras.metrics.MeanMetricWrapper(parts.mixture_nll, "nll")
            model.compile(
                keras.optimizers.Adam(run.learning_rate, global_clipnorm=10.0),
                parts.MixtureNLL(reduction="mean_with_sample_weight"),
                weighted_metrics=[nll],
                **run.speed,
            )
            model.fit(
                run.batches(*train.fed),
                steps_per_epoch=run.steps,
                shuffle=False,
                epochs=run.epochs,
                validation_data=validation.fed,
                validation_batch_size=64,
                callbacks=run.callbacks(model),
                verbose=run.verbose,
            )
            inputs, points, valid = test.fed
            _, found = model.evaluate(
                inputs, points, 64, sample_weight=valid, verbose=0
            )
            print(f"{model.count_params():,} weights")
            ways = parts.write(
                model,
                strokes.encode(run.text),
                length=2 * steps,
                bias=run.bias,
                random=np.random.default_rng(run.seed),
            )
            plotting.handwriting(ways, run.text, run.folder / "samples.png")
            run.finish({"train_nll": run.last["nll"], "test_nll": found})
    source = report.source(args.data, embedded="stroke fonts")
    title = f"{source}, {count:,} training lines"
    return report.draw(args, PANELS, COLUMNS, title, race=NLL)


if __name__ == "__main__":
    ending.execute(main)
