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

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

from common import cli, ending, flags
from common.experiment import Experiment, two_presets
from common.measures import UPDATES, Panel

KINDS = ("none", "batch", "batch-everywhere", "layer")


def error_rate(row: Mapping[str, float]) -> float:
    """The share of wrong answers to the validation questions."""
    return 1 - row["val_accuracy"]


class AttentiveReader(Experiment):
    """The experiment of section 6.2, with `cloze.Cloze`."""

    shown = ("loss", "val_loss", "val_accuracy")

    def add_arguments(self, parser):
        flags.add_counts(
            parser,
            sentences="sentences to which a passage is cut",
            length="words to which a passage is cut",
            entities="most names that a question may have, or it is left out",
            words="number of known words, the most frequent ones",
        )
        flags.add_numbers(
            parser,
            flags.share,
            dropout="share of inputs and outputs to drop, below 1",
            momentum="share of old statistics that batch norm. keeps",
        )
        flags.add_numbers(
            parser, spread="standard deviation of the embeddings at the start"
        )

    def load_data(self, args):
        from common.datasets import cloze

        data = cloze.load(args)
        if args.smoke:
            return data._replace(
                train=data.train.first(256),
                validation=data.validation.first(128),
            )
        return data

    def sizes(self, data):
        return len(data.train.answers), len(data.validation.answers)

    def make_task(self, args, data):
        import attentive_reader_model
        import keras
        from common.datasets import cloze

        model = attentive_reader_model.build_model(
            args.norm,
            args.units,
            data.train.passages.shape[1],
            data.train.queries.shape[1],
            len(data.vocabulary),
            args.dropout,
            args.gain,
            args.momentum,
            args.spread,
            args.seed,
            args.forget_steps,
        )

        def as_fit_wants(passages, queries, answers):
            return (passages, queries), answers

        task = self.compile(
            args,
            data,
            model,
            lambda part: part.train,
            lambda part: part.validation,
            as_fit_wants,
            cloze.batches,
            optimizer=keras.optimizers.Adam(
                args.learning_rate, global_clipnorm=10.0
            ),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
        )
        return dataclasses.replace(task, vocabulary=data.vocabulary)

    def measure_row(self, row):
        return {
            "validation_nll": row["val_loss"],
            "validation_error_percent": 100 * error_rate(row),
        }

    def finish(self, args, data, task, history, folder):
        best = min(map(error_rate, history.rows))
        return {"best_validation_error_percent": 100 * best}

    def details(self, args, data):
        return [
            f"passages of {data.train.passages.shape[1]} words",
            f"at most {args.entities} names",
        ]

    def floors(self, args, data):
        """A random name of the passage, and its most frequent name."""
        import numpy as np

        found: dict[str, list[float]] = {
            "chance": [],
            "most frequent name": [],
        }
        for passage, answer in zip(
            data.validation.passages, data.validation.answers, strict=True
        ):
            counts = np.bincount(passage[data.is_marker(passage)])
            most = counts == counts.max()
            found["chance"].append(1 / np.count_nonzero(counts))
            found["most frequent name"].append(most[answer] / most.sum())
        return {
            name: {
                "validation_error_percent": 100 * (1 - float(np.mean(right)))
            }
            for name, right in found.items()
        }


EXPERIMENT = AttentiveReader(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    presets=two_presets(
        data=("embedded", "tfds"),
        epochs=(12, 8),
        batch_size=(32, 64),
        units=(64, 240),
        learning_rate=(1e-3, 8e-5),
        sentences=(4, 4),
        length=(40, 300),
        entities=(5, 1000),
        words=(300, 120_000),
        dropout=(0.0, 0.5),
        momentum=(0.95, 0.99),
        spread=(1.0, 0.01),
    ),
    smoke={"epochs": 2, "units": 8},
    compared={"gain": (0.1, 1.0)},
    without_gain=("none",),
    batch_kinds=("batch", "batch-everywhere"),
    tuned=("spread", (0.1, 0.3, 1.0)),
    memory=lambda args: args.length,
    panels=(
        Panel("training NLL (nats)", lambda row: row["loss"]),
        Panel("validation error rate", error_rate),
    ),
    columns={
        "training NLL": "train_nll",
        "validation NLL": "validation_nll",
        "validation error (%)": "validation_error_percent",
        "best": "best_validation_error_percent",
    },
    race=Panel("validation error", error_rate),
    progress=UPDATES,
    examples=("training questions", "validation questions"),
    data_names={"embedded": "King James Bible"},
)

main = functools.partial(cli.run, EXPERIMENT)

if __name__ == "__main__":
    ending.execute(main)
