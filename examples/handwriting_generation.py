"""Handwriting: section 6.5 and figure 5 of the paper.

Three LSTMs, one of which moves a window over the text, learn how the pen goes
on, and write (Graves, 2013, section 5):

    none   LSTM
    layer  LSTM with layer normalisation

The paper's claim: both end at about the same negative log-likelihood, and layer
normalisation gets there sooner.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common import cli, ending, flags
from common.datasets.alphabet import ALPHABET
from common.errors import InputError
from common.experiment import Experiment, two_presets
from common.measures import Panel

if TYPE_CHECKING:
    from common import training
    from common.datasets import strokes

KINDS = ("none", "layer")
TEXTS = ("the lord", "And God", "of Egypt", "his son")


class Handwriting(Experiment):
    """The experiment of section 6.5."""

    evaluation_batch = 64
    training_metric = ("train_nll", "nll")

    def add_arguments(self, parser: ArgumentParser) -> None:
        flags.add_gain(parser)
        parser.add_argument(
            "--length",
            type=flags.positive_integer,
            metavar="N",
            help="points after which a line is cut",
        )
        parser.add_argument(
            "--text",
            nargs="+",
            metavar="STRING",
            help="what the trained model shall write",
        )
        parser.add_argument(
            "--bias",
            type=flags.nonnegative_number,
            metavar="X",
            help="0 for samples of the learned density, more for clearer ones",
        )

    def check_flags(self, args: Namespace) -> None:
        """Refuses texts that the alphabet does not allow."""
        for text in args.text:
            unknown = sorted(set(text) - set(ALPHABET))
            if unknown or not text:
                raise InputError(
                    f"--text: expected characters of '{ALPHABET}', "
                    f"received {text!r}"
                )

    def load_data(self, args: Namespace) -> "strokes.Handwriting":
        from common.datasets import strokes

        data = strokes.load(args)
        if args.smoke:
            train, test = data.train.first(64), data.test.first(64)
            return strokes.Handwriting(train, test)
        return data

    def sizes(self, data: "strokes.Handwriting") -> tuple[int, int]:
        return len(data.train.points), len(data.test.points)

    def make_task(
        self, args: Namespace, data: "strokes.Handwriting"
    ) -> "training.Task":
        """Compiles the model, whose loss is in nats per point."""
        import handwriting_generation_mixture as mixture
        import handwriting_generation_model
        import keras
        import numpy as np
        from common import devices, training
        from common.datasets import streams

        learnt = training.learnt(args, data)
        written = learnt.train.valid.sum()
        pace = float(np.count_nonzero(learnt.train.symbols) / written)
        model = handwriting_generation_model.build_model(
            args.norm,
            args.units,
            data.train.points.shape[1],
            data.train.symbols.shape[1],
            pace=pace,
            gain=args.gain,
        )
        updates_per_pass = len(learnt.train.points) // args.batch_size
        model.compile(
            keras.optimizers.Adam(args.learning_rate, global_clipnorm=10.0),
            mixture.MixtureNLL(reduction="mean_with_sample_weight"),
            weighted_metrics=[
                keras.metrics.MeanMetricWrapper(mixture.mixture_nll, name="nll")
            ],
            **training.speed(args.evaluate_every or updates_per_pass),
        )

        def shifted(points, valid, symbols):
            # A point is to be foreseen from the points before it.
            before = np.pad(points[:, :-1], ((0, 0), (1, 0), (0, 0)))
            return before, symbols, points, valid

        def as_fit_wants(before, symbols, points, valid):
            return (before, symbols), points, valid

        def evaluated(part):
            tested, batch = devices.held_out(
                args, len(part.test.points), self.evaluation_batch
            )
            points = shifted(*part.test.first(tested))
            return streams.in_order(points, batch).map(as_fit_wants)

        train = shifted(*learnt.train)
        return training.Task(
            model,
            lambda update: streams.shuffled(
                train, args.batch_size, args.seed, update
            ).map(as_fit_wants),
            updates_per_pass,
            evaluated(data),
            evaluated(learnt) if args.tune else None,
        )

    def measure_row(self, row: Mapping[str, float]) -> dict[str, float]:
        return {"test_nll": row["val_nll"]}

    def finish(self, args, data, task, history, folder) -> dict[str, float]:
        """Writes samples.png."""
        import handwriting_generation_model
        import numpy as np
        from common import plotting
        from common.datasets import strokes

        print(f"{task.model.count_params():,} weights")
        ways = handwriting_generation_model.write(
            task.model,
            strokes.encode_all(args.text),
            length=2 * data.train.points.shape[1],
            bias=args.bias,
            random=np.random.default_rng(args.seed),
        )
        plotting.handwriting(ways, args.text, folder / "samples.png")
        return {}

    def floors(
        self, args: Namespace, data: "strokes.Handwriting"
    ) -> dict[str, dict[str, float]]:
        """The density that is the same for all points, fitted to them."""
        import numpy as np
        from scipy import stats

        train, test = (
            part.points[part.valid > 0].astype(np.float64)
            for part in (data.train, data.test)
        )
        normal = stats.multivariate_normal(
            train[:, :2].mean(axis=0), np.cov(train[:, :2].T)
        )
        end = stats.bernoulli(train[:, 2].mean())
        nll = -normal.logpdf(test[:, :2]) - end.logpmf(test[:, 2])
        return {"one Gaussian": {"test_nll": float(nll.mean())}}


EXPERIMENT = Handwriting(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    without_gain=("none",),
    presets=two_presets(
        data=("embedded", "tfds"),
        epochs=(15, 50),
        batch_size=(32, 8),
        units=(64, 400),
        learning_rate=(3e-3, 1e-3),
        length=(500, 500),
        text=(TEXTS, TEXTS),
        bias=(1.0, 1.0),
    ),
    smoke={"epochs": 2, "units": 8, "length": 20},
    panels=(
        Panel("training NLL (nats per point)", lambda row: row["nll"]),
        Panel("test NLL (nats per point)", lambda row: row["val_nll"]),
    ),
    columns={"training NLL": "train_nll", "test NLL": "test_nll"},
    race=Panel("test NLL", lambda row: row["val_nll"]),
    examples=("training lines", "test lines"),
    data_names={"embedded": "stroke fonts", "tfds": "IAM-OnDB"},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    ending.execute(main)
