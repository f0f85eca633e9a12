"""Handwriting: section 6.5 and figure 5 of the paper.

Three LSTMs, one of which moves a window over the text, learn to predict the pen
and write (Graves, 2013, section 5):

    none   LSTM
    layer  LSTM with layer normalisation

The paper's claim: both end at about the same negative log-likelihood, and layer
normalisation gets there sooner.
"""

import functools
from pathlib import Path

from common import cli, ending, flags
from common.datasets.alphabet import ALPHABET
from common.errors import InputError
from common.experiment import Experiment, two_presets
from common.measures import Panel

KINDS = ("none", "layer")
TEXTS = ("the lord", "And God", "of Egypt", "his son")


class Handwriting(Experiment):
    """The experiment of section 6.5, with `strokes.Handwriting`."""

    evaluation_batch = 64
    training_metric = ("train_nll", "nll")
    shown = ("nll", "val_nll")

    def add_arguments(self, parser):
        flags.add_counts(parser, length="points after which a line is cut")
        parser.add_argument(
            "--text",
            nargs="+",
            metavar="STRING",
            help="texts for the trained model to write",
        )
        flags.add_numbers(
            parser,
            flags.nonnegative_number,
            bias="0 for samples of the learned density, more for clearer ones",
        )

    def check_flags(self, args):
        """Refuses texts that the alphabet does not allow."""
        for text in args.text:
            unknown = sorted(set(text) - set(ALPHABET))
            if unknown or not text:
                raise InputError(
                    f"--text: expected characters of '{ALPHABET}', "
                    f"received {text!r}"
                )

    def load_data(self, args):
        from common.datasets import strokes

        data = strokes.load(args)
        if args.smoke:
            train, test = data.train.first(64), data.test.first(64)
            return strokes.Handwriting(train, test)
        return data

    def sizes(self, data):
        return len(data.train.points), len(data.test.points)

    def make_task(self, args, data):
        """Compiles the model, whose loss is in nats per point."""
        import handwriting_generation_mixture as mixture
        import handwriting_generation_model
        import keras
        import numpy as np
        from common import training

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
            forget_steps=args.forget_steps,
        )

        def shifted(points, valid, symbols):
            # Each point is predicted from the points before it.
            before = np.pad(points[:, :-1], ((0, 0), (1, 0), (0, 0)))
            return before, symbols, points, valid

        def as_fit_wants(before, symbols, points, valid):
            return (before, symbols), points, valid

        return self.compile(
            args,
            data,
            model,
            lambda part: shifted(*part.train),
            lambda part: shifted(*part.test),
            as_fit_wants,
            optimizer=keras.optimizers.Adam(
                args.learning_rate, global_clipnorm=10.0
            ),
            loss=mixture.MixtureNLL(reduction="mean_with_sample_weight"),
            weighted_metrics=[
                keras.metrics.MeanMetricWrapper(mixture.mixture_nll, name="nll")
            ],
        )

    def measure_row(self, row):
        return {"test_nll": row["val_nll"]}

    def finish(self, args, data, task, history, folder):
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

    def floors(self, args, data):
        """A single density for all points, fitted to them."""
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
    memory=lambda args: args.length,
    panels=(
        Panel("training NLL (nats per point)", lambda row: row["nll"]),
        Panel("test NLL (nats per point)", lambda row: row["val_nll"]),
    ),
    columns={"training NLL": "train_nll", "test NLL": "test_nll"},
    race=Panel("test NLL", lambda row: row["val_nll"]),
    examples=("training lines", "test lines"),
    data_names={"embedded": "stroke fonts", "tfds": "IAM-OnDB"},
)

main = functools.partial(cli.run, EXPERIMENT)

if __name__ == "__main__":
    ending.execute(main)
