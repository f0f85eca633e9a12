"""Sentence vectors: skip-thoughts, section 6.3, figure 3 and table 3.

A GRU reads a sentence, and two others write the sentences before and after it
from its last state (Kiros et al., 2015). Every --evaluate-every updates the
fixed state is tested as a sentence vector in other tasks:

    none   GRU
    layer  GRU with layer normalisation, eq. 26 to 28

The paper's claim: with layer normalisation training is faster, and the results
after a million updates are better on all tasks. The embedded data are the King
James Bible; the tasks are to find verses in the World English Bible and to tell
books apart, or with --eval-dir the tasks of the paper, from their published
files.
"""

from common import ending, flags
from common.errors import InputError
from common.report import Panel

KINDS = ("none", "layer")
PRESETS = {  # quick, paper, --smoke
    # "tfds" raises an error with instructions.
    "data": ("embedded", "tfds", "embedded"),
    "epochs": (2, 1, 2),
    "batch_size": (64, 64),
    "units": (128, 2400, 8),
    "learning_rate": (2e-3, 2e-4),
    "evaluate_every": (100, 1_000, 4),
    "word_units": (64, 620, 8),
    # The papers' uniform numbers in [-0.1, 0.1] have this deviation.
    "word_scale": (1.0, 0.06),
    "vocabulary": (2_000, 20_000, 200),
    "length": (20, 30, 6),
}
FLAGS = (
    flags.WORD_SCALE,
    flags.WORD_UNITS,
    flags.count("vocabulary", "number of known words, the most frequent ones"),
    flags.count("length", "words after which a sentence is cut"),
    flags.EVALUATE_EVERY,
    flags.Flag(
        "eval_dir",
        "the folder of the published files of the tasks",
        type=flags.absolute,
        metavar="DIR",
    ),
    flags.Flag(
        "eval_tasks",
        "any of sick, mr, cr, subj, mpqa (default: all), verses, which needs "
        "no file, or the NAME of two files NAME.pos and NAME.neg with one "
        "sentence per line",
        nargs="+",
        type=flags.name,
        metavar="TASK",
    ),
    flags.Flag(
        "word_vectors",
        "word2vec vectors in its text format, for unknown words",
        type=flags.absolute,
        metavar="FILE",
    ),
)
NLL = Panel("validation NLL (nats per word)", "val_nll")


def main(argv=None):
    args = flags.parse(*(__file__, __doc__, KINDS, PRESETS, argv), own=FLAGS)
    if args.eval_tasks and not args.eval_dir:
        raise InputError("--eval-tasks names tasks of --eval-dir")

    import keras
    import skip_thoughts_model as parts
    from common import callbacks, devices, report, runs
    from common.datasets import books

    data = parts.load(args)
    text, learnt = data.books, data.books.held_out()
    validation, test = (
        books.triples(text.sentences, devices.even(args, own.test)[0])
        for own in (learnt, text)
    )
    updates = books.updates_per_pass(args, learnt)
    logits = {"from_logits": True}
    for run in runs.of(args, updates=updates):
        with run:
            model = parts.build_model(
                *(run.norm, run.units, run.word_units, text.known),
                *(run.length, run.gain, run.word_scale),
            )
            run.write_words(text.words)
            # As in Kiros et al. the loss is a sum over the batch, so that
            # clipping acts in almost every update. Without `run.speed`: XLA
            # would compile the whole step again for each length of sentences.
            nll = keras.metrics.SparseCategoricalCrossentropy("nll", **logits)
            model.compile(
                keras.optimizers.Adam(run.learning_rate, global_clipnorm=5.0),
                keras.losses.SparseCategoricalCrossentropy(
                    reduction="sum", **logits
                ),
                weighted_metrics=[nll],
            )
            batches = books.batches(
                learnt, run.batch_size, run.seed, updates, run.first
            )
            model.fit(
                runs.feed(batches, any_length=True),
                steps_per_epoch=run.steps,
                shuffle=False,
                epochs=run.epochs,
                validation_data=validation,
                validation_batch_size=128,
                callbacks=run.callbacks(
                    model, callbacks.Measured(lambda m: parts.measure(m, data))
                ),
                verbose=run.verbose,
            )
            inputs, words, weights = test
            _, nll = model.evaluate(
                inputs, words, 128, sample_weight=weights, verbose=0
            )
            measures = parts.measure(model, data)
            run.finish(
                {"train_nll": run.last["nll"], "test_nll": nll, **measures}
            )
    shown = parts.names_of(data)
    panels = [NLL, *(Panel(shown[n], f"val_{n}") for n in [*shown][:3])]
    columns = {"test NLL": "test_nll", **{v: k for k, v in shown.items()}}
    source = report.source(args.data, embedded="King James Bible")
    title = f"{source}, {len(learnt.train):,} training sentences"
    return report.draw(
        *(args, panels, columns, title), race=NLL, progress="updates"
    )


if __name__ == "__main__":
    ending.execute(main)
