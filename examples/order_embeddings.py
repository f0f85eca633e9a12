"""Images and captions in one ordered space: section 6.1, figure 1, table 2.

A GRU reads a caption, a linear map reads an image's features, and captions
should lie below the images that they describe (Vendrov et al., 2016):

    none       GRU
    layer      GRU with layer normalisation
    symmetric  GRU, with the cosine instead of the order

The paper's claim: layer normalisation reaches its best validation recall in
60 % of the time, and retrieves images better:

                                 R@1   R@5   R@10  mean rank
    with layer normalisation     38.9  74.3  86.3  7.6
    without                      37.8  73.6  85.7  7.9
"""

from common import ending, flags
from common.errors import InputError
from common.report import Panel

KINDS = ("none", "layer", "symmetric")
PRESETS = {  # quick, paper, --smoke
    "data": ("embedded", "tfds", "embedded"),
    "epochs": (50, 100, 2),
    "batch_size": (64, 128),
    "units": (128, 1024, 8),
    "learning_rate": (1e-3, 1e-3),
    "word_units": (64, 300),
    # The papers' uniform numbers in [-0.1, 0.1] have this deviation.
    "word_scale": (1.0, 0.06),
    "length": (30, 30),  # One in a thousand captions of COCO is longer.
    "fold": (200, 1000, 40),
    "evaluate_every": (None, 300, 4),
}
FLAGS = (
    flags.WORD_SCALE,
    flags.WORD_UNITS,
    flags.count("length", "words after which a caption is cut"),
    flags.count("fold", "number of images to search"),
    flags.number("margin", "of the loss (default: 0.05, cosine 0.2)"),
    flags.EVALUATE_EVERY,
)
PANELS = [
    Panel(f"validation: image R@{k} (%)", f"val_image_r{k}") for k in (1, 5, 10)
]
LACK = Panel("recall", lambda row: -row["val_best_recall_sum"])
COLUMNS = {
    "image mean r": "image_mean_rank",
    **{f"image R@{k}": f"image_r{k}" for k in (1, 5, 10)},
    "caption mean r": "caption_mean_rank",
    **{f"caption R@{k}": f"caption_r{k}" for k in (1, 5, 10)},
    "updates to its best": "best_updates",
}


def main(argv=None):
    args = flags.parse(*(__file__, __doc__, KINDS, PRESETS, argv), own=FLAGS)

    import keras
    import order_embeddings_model as parts
    from common import devices, report, runs
    from common.datasets import captions

    # A device with only one pair of the batch has no wrong pairs.
    number = devices.count(args)
    least = 2 * number
    if args.fold % number:
        raise InputError(
            f"--fold: {args.fold} cannot be split evenly over {number} devices"
        )
    if args.batch_size < least:
        raise InputError(
            f"--batch-size {args.batch_size} leaves a device no wrong pairs to "
            f"learn from; expected at least {least}"
        )
    data = captions.load(args)
    count, width = data.train.features.shape
    for run in runs.of(args, examples=count):
        with run:
            model = parts.build_model(
                *(run.norm, run.units, len(data.vocabulary)),
                *(data.train.words.shape[1], width, run.word_units),
                *(run.gain, run.word_scale),
            )
            run.write_words(data.vocabulary)
            similarity = parts.similarity_of(run.norm)
            how = (similarity, run.fold, data.growing)
            recall = keras.metrics.MeanMetricWrapper(
                parts.batch_recall, "batch_recall", similarity=similarity
            )
            model.compile(
                # Every gradient is clipped separately.
                keras.optimizers.Adam(run.learning_rate, clipnorm=2.0),
                parts.ContrastiveLoss(similarity, run.margin),
                metrics=[recall],
                **run.speed,
            )
            batches = data.train.batches(run.batch_size, run.seed, run.first)
            model.fit(
                runs.feed(batches),
                steps_per_epoch=run.steps,
                shuffle=False,
                epochs=run.epochs,
                validation_data=data.dev.fed,
                validation_batch_size=100,
                callbacks=run.callbacks(
                    model,
                    parts.Validation(data.dev, *how),
                    monitor="val_recall_sum",
                ),
                verbose=run.verbose,
            )
            best = keras.models.load_model(
                run.folder / "model.keras", compile=False
            )
            row = max(run.history.rows, key=lambda r: r["val_recall_sum"])
            found = parts.search(best, data.test, *how)
            found["val_recall_sum"] = row["val_recall_sum"]
            run.finish(found | {"best_updates": row["updates"]})
    columns = dict(COLUMNS)
    if data.growing:
        columns["order accuracy (%)"] = "order_accuracy"
    source = report.source(args.data, embedded="generated scenes")
    title = f"{source}, {count:,} images, searched among {args.fold:,}"
    return report.draw(
        *(args, PANELS, columns, title), race=LACK, progress="updates"
    )


if __name__ == "__main__":
    ending.execute(main)
