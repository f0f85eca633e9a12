"""Reading and answering: section 6.2 and figure 2 of the paper.

One LSTM reads a passage, another LSTM reads a query that lacks the name of an
entity, and attention looks the name up in the passage (Hermann et al., 2015, in
the set-up of Cooijmans et al., "Recurrent Batch Normalization", 2016):

    none              LSTM
    batch             BNLSTM, statistics of each time step
    batch-everywhere  BNLSTM, and batch normalisation in attention and output
    layer             LNLSTM

The paper's claim: layer normalisation trains faster than all the others and
ends with the lowest validation error.
"""

from common import ending, flags
from common.report import Panel

KINDS = ("none", "batch", "batch-everywhere", "layer")
PRESETS = {  # quick, paper, --smoke
    # "tfds" raises an error with instructions.
    "data": ("embedded", "tfds", "embedded"),
    "epochs": (12, 8, 2),
    "batch_size": (32, 64),
    "units": (64, 240, 8),
    "learning_rate": (1e-3, 8e-5),
    "sentences": (4, 4),
    "length": (40, 300),
    "entities": (5, 1000),
    "words": (300, 120_000),
    "dropout": (0.0, 0.5),
    "momentum": (0.95, 0.99),
    "spread": (1.0, 0.01),
}
FLAGS = (
    flags.count("sentences", "sentences to which a passage is cut"),
    flags.count("length", "words to which a passage is cut"),
    flags.count("entities", "names that a question may have, or it is out"),
    flags.count("words", "number of known words, the most frequent ones"),
    flags.number("dropout", "share of in- and outputs to drop", flags.share),
    flags.number("momentum", "share of old batch statistics", flags.share),
    flags.number("spread", "standard deviation of the first word vectors"),
    flags.FORGET_STEPS,
)
ERROR = Panel("validation error rate", lambda row: 1 - row["val_accuracy"])
PANELS = (Panel("training NLL (nats)", "loss"), ERROR)
COLUMNS = {
    "training NLL": "train_nll",
    "validation NLL": "validation_nll",
    "validation error (%)": "validation_error_percent",
    "best": "best_validation_error_percent",
}


def main(argv=None):
    args = flags.parse(
        *(__file__, __doc__, KINDS, PRESETS, argv),
        own=FLAGS,
        compared={"gain": (0.1, 1.0)},
    )

    import keras
    from attentive_reader_model import build_model
    from common import report, runs
    from common.datasets import cloze

    data = cloze.load(args)
    validation = data.validation.fed
    passages, queries, answers = data.train
    for run in runs.of(args, examples=len(answers)):
        with run:
            model = build_model(
                *(run.norm, run.units, passages.shape[1], queries.shape[1]),
                *(len(data.vocabulary), run.dropout, run.gain, run.momentum),
                *(run.spread, run.seed, run.forget_steps),
            )
            run.write_words(data.vocabulary)
            model.compile(
                keras.optimizers.Adam(run.learning_rate, global_clipnorm=10.0),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
                **run.speed,
            )
            how = (data.markers, run.batch_size, run.seed, run.first)
            model.fit(
                runs.feed(cloze.batches(data.train, *how)),
                steps_per_epoch=run.steps,
                shuffle=False,
                epochs=run.epochs,
                validation_data=validation,
                validation_batch_size=128,
                callbacks=run.callbacks(model),
                verbose=run.verbose,
            )
            loss, accuracy = model.evaluate(
                *validation, batch_size=128, verbose=0
            )
            best = min(map(ERROR.of, run.history.rows))
            found = {"train_nll": run.last["loss"], "validation_nll": loss}
            found["validation_error_percent"] = 100 * (1 - accuracy)
            run.finish(found | {"best_validation_error_percent": 100 * best})
    source = report.source(args.data, embedded="King James Bible")
    title = (
        f"{source}, {len(answers):,} training questions, passages of "
        f"{passages.shape[1]} words"
    )
    return report.draw(
        *(args, PANELS, COLUMNS, title), race=ERROR, progress="updates"
    )


if __name__ == "__main__":
    ending.execute(main)
