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

import dataclasses
import functools
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import cli, ending, flags
from common.errors import InputError
from common.experiment import Experiment, two_presets
from common.measures import UPDATES, Panel

if TYPE_CHECKING:
    from common.datasets import captions

KINDS = ("none", "layer", "symmetric")


def tested(args: Namespace, data: "captions.Captions") -> "captions.Split":
    """The test images of at most five whole folds."""
    from common import ranking

    folds = min(ranking.FOLDS, len(data.test.features) // args.fold)
    return data.test.first(folds * args.fold)


class OrderEmbeddings(Experiment):
    """The experiment of section 6.1, with `captions.Captions`."""

    evaluation_batch = 100
    shown = ("loss", "val_loss", "val_recall_sum")

    def add_arguments(self, parser):
        flags.add_numbers(parser, word_scale=flags.WORD_SCALE)
        flags.add_counts(
            parser,
            word_units="size of a word's vector",
            length="words after which a caption is cut",
            fold="number of images to search",
        )
        flags.add_numbers(
            parser,
            margin="margin of the loss (default: 0.05, cosine 0.2)",
        )

    def for_flags(self, args):
        if args.data != "embedded":
            return self
        # Only the scenes' captions have a known order of generality.
        columns = {**self.columns, "order accuracy (%)": "order_accuracy"}
        return dataclasses.replace(self, columns=columns)

    def load_data(self, args):
        from common import ranking
        from common.datasets import captions

        data = captions.load(args)
        if not args.smoke:
            return data
        return data._replace(
            train=data.train.first(256),
            dev=data.dev.first(args.fold),
            test=data.test.first(ranking.FOLDS * args.fold),
        )

    def sizes(self, data):
        return len(data.train.features), len(data.dev.words)

    def check(self, args, data):
        from common import devices

        # A device with only one pair of the batch has no wrong pairs.
        least = 2 * devices.count(args)
        if args.batch_size < least:
            raise InputError(
                f"--batch-size {args.batch_size} leaves a device no wrong "
                f"pairs to learn from; expected at least {least}"
            )
        for name, split in (("dev", data.dev), ("test", data.test)):
            if len(split.features) < args.fold:
                raise InputError(
                    f"the {len(split.features)} {name} images are fewer than "
                    f"the {args.fold} of --fold"
                )
        super().check(args, data._replace(dev=data.dev.first(args.fold)))

    def make_task(self, args, data):
        """Compiles the model, whose loss is summed over a batch."""
        import keras
        import order_embeddings_model as parts
        from common import devices, training

        words, features = data.train
        model = parts.build_model(
            args.norm,
            args.units,
            len(data.vocabulary),
            words.shape[1],
            features.shape[1],
            args.word_units,
            args.gain,
            args.word_scale,
        )
        similarity = parts.similarity_of(args.norm)
        updates_per_pass = len(features) // args.batch_size
        dev = data.dev.first(args.fold)
        evaluated, batch = devices.held_out(
            args, len(dev.words), self.evaluation_batch
        )
        model.compile(
            # Every gradient is clipped separately.
            keras.optimizers.Adam(args.learning_rate, clipnorm=2.0),
            parts.ContrastiveLoss(similarity, args.margin),
            metrics=[parts.BatchRecall(similarity)],
            **training.speed(args.evaluate_every or updates_per_pass),
        )
        return training.Task(
            model,
            lambda update: data.train.shuffled(
                args.batch_size, args.seed, update
            ),
            updates_per_pass,
            dev.in_order(batch, evaluated),
            vocabulary=data.vocabulary,
            shown=self.shown,
        )

    def measure(
        self,
        args: Namespace,
        data: "captions.Captions",
        model: Any,
        split: "captions.Split",
    ) -> dict[str, float]:
        """Measures of searches among the images of every fold of a split."""
        import order_embeddings_model as parts
        from common import ranking
        from common.datasets import captions

        sentences, images = parts.embed(
            model, split, args, self.evaluation_batch
        )
        score = parts.scorer(parts.similarity_of(args.norm))
        found = ranking.fold_measures(sentences, images, score, args.fold)
        if data.growing:
            accuracy = parts.order_accuracy(sentences, captions.EACH)
            found["order_accuracy"] = accuracy
        return found

    def train(self, args, data, folder):
        """Trains one kind; tests the model with the best validation."""
        import keras
        import order_embeddings_model as parts

        dev = data.dev.first(args.fold)
        task = self.make_task(args, data)
        embedding = parts.without_loss(task.model)
        validation = parts.Validation(
            lambda _: self.measure(args, data, embedding, dev)
        )
        history = task.fit(
            folder,
            args,
            monitor="val_recall_sum",
            mode="max",
            extra_callbacks=[validation],
        )
        best = keras.models.load_model(folder / "model.keras", compile=False)
        metrics = self.measure(args, data, best, tested(args, data))
        last = history.rows[-1]
        row = next(
            row
            for row in history.rows
            if row["val_recall_sum"] == last["val_best_recall_sum"]
        )
        metrics |= {
            "folds": len(tested(args, data).features) // args.fold,
            "val_recall_sum": row["val_recall_sum"],
            "best_updates": row["updates"],
            "epochs": last["epoch"],
            "updates": last["updates"],
        }
        return metrics, history

    def untrained(self, args, data):
        import order_embeddings_model as parts
        from common import training

        model = self.make_task(args, data).model
        training.scale_matrices(model, args.scale)
        embedding = parts.without_loss(model)
        return self.measure(args, data, embedding, tested(args, data))

    def floors(self, args, data):
        """Chance, and the prediction of image features from words."""
        from common import baselines

        found = baselines.of_captions(data, tested(args, data), args.fold)
        if data.growing:
            found["chance"]["order_accuracy"] = 50.0
        return found

    def describe(self, args, data):
        return (
            f"{self.data_name(args)}, {len(data.train.features):,} training "
            f"images, searched among {args.fold:,}"
        )


RACE = Panel("best recall", lambda row: -row["val_best_recall_sum"])

EXPERIMENT = OrderEmbeddings(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    presets=two_presets(
        data=("embedded", "tfds"),
        epochs=(50, 100),
        batch_size=(64, 128),
        units=(128, 1024),
        learning_rate=(1e-3, 1e-3),
        word_units=(64, 300),
        # The papers' uniform numbers in [-0.1, 0.1] have this deviation.
        word_scale=(1.0, 0.06),
        length=(30, 30),  # One in a thousand captions of COCO is longer.
        fold=(200, 1000),
        evaluate_every=(None, 300),
    ),
    smoke={"epochs": 2, "units": 8, "fold": 40, "evaluate_every": 4},
    without_gain=("none", "symmetric"),
    tuned=("word_scale", (0.1, 0.3, 1.0)),
    embeddings="normal",
    panels=[
        Panel(
            f"validation: image R@{k} (%)",
            lambda row, name=f"val_image_r{k}": row[name],
        )
        for k in (1, 5, 10)
    ],
    columns={
        "caption R@1": "caption_r1",
        "caption R@5": "caption_r5",
        "caption R@10": "caption_r10",
        "caption mean r": "caption_mean_rank",
        "image R@1": "image_r1",
        "image R@5": "image_r5",
        "image R@10": "image_r10",
        "image mean r": "image_mean_rank",
        "updates to its best": "best_updates",
    },
    race=RACE,
    progress=UPDATES,
    criterion=Panel("minus best recall", RACE.value),
    data_names={"embedded": "generated scenes", "tfds": "COCO"},
)

main = functools.partial(cli.run, EXPERIMENT)

if __name__ == "__main__":
    ending.execute(main)
