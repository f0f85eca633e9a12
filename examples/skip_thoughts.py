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

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

from common import cli, ending, flags
from common.errors import InputError
from common.experiment import Experiment, two_presets
from common.measures import UPDATES, Panel

KINDS = ("none", "layer")
# The published tasks; `common.datasets.sentence_tasks` reads them.
TASKS = ("sick", "mr", "cr", "subj", "mpqa")
SMOKE_SENTENCES = 1_500
NLL = Panel("held-out NLL (nats per word)", lambda row: row["val_nll"])
VERSE_MEASURES = {
    "verses_r1": "alignment R@1 (%)",
    "verses_r5": "R@5 (%)",
    "verses_r10": "R@10 (%)",
    "verses_mean_rank": "mean rank of 1000",
    "verses_book_accuracy": "book accuracy (%)",
}
# They add little to other measures of their task; a figure has four panels.
UNDRAWN = ("verses_r1", "verses_r5", "verses_mean_rank")
UNDRAWN += ("sick_spearman", "sick_mse")
TASK_MEASURES = {
    "sick_pearson": "SICK r",
    "sick_spearman": "SICK rho",
    "sick_mse": "SICK MSE",
    "mr": "MR (%)",
    "cr": "CR (%)",
    "subj": "SUBJ (%)",
    "mpqa": "MPQA (%)",
}


def _panels(measures: Mapping[str, str]) -> list[Panel]:
    return [NLL] + [
        Panel(label, lambda row, name=f"val_{name}": row[name])
        for name, label in measures.items()
    ]


def _columns(measures: Mapping[str, str]) -> dict[str, str]:
    columns = {label: name for name, label in measures.items()}
    return {"held-out NLL": "test_nll", **columns}


class SkipThoughts(Experiment):
    """The experiment of section 6.3, with `skip_thoughts_model.Data`."""

    training_metric = ("train_nll", "nll")
    shown = ("nll", "val_nll")

    def add_arguments(self, parser):
        flags.add_numbers(parser, word_scale=flags.WORD_SCALE)
        flags.add_counts(
            parser,
            word_units="size of a word's vector",
            vocabulary="number of known words, the most frequent ones",
            length="words after which a sentence is cut",
        )
        parser.add_argument(
            "--eval-dir",
            type=flags.absolute,
            metavar="DIR",
            help="the folder of the published files of the tasks",
        )
        parser.add_argument(
            "--eval-tasks",
            nargs="+",
            type=flags.name,
            metavar="TASK",
            help=f"any of {', '.join(TASKS)} (default: all), verses, which "
            "needs no file, or the NAME of two files NAME.pos and NAME.neg "
            "with one sentence per line",
        )
        parser.add_argument(
            "--word-vectors",
            type=flags.absolute,
            metavar="FILE",
            help="word2vec vectors in its text format, for unknown words",
        )

    def check_flags(self, args):
        """Refuses tasks without a folder."""
        if args.eval_tasks and not args.eval_dir:
            raise InputError("--eval-tasks names tasks of --eval-dir")

    def for_flags(self, args):
        """The experiment with the tasks of --eval-dir in table and figure."""
        if not args.eval_dir:
            return self
        names = args.eval_tasks or TASKS
        known = TASK_MEASURES | VERSE_MEASURES
        of_tasks = {measure: measure.split("_")[0] for measure in known}
        found = {m: known[m] for m, task in of_tasks.items() if task in names}
        found |= {
            name: f"{name} (%)"
            for name in names
            if name not in of_tasks.values()
        }
        drawn = [m for m in found if m not in UNDRAWN][:3]
        return dataclasses.replace(
            self,
            panels=_panels({m: found[m] for m in drawn}),
            columns=_columns(found),
        )

    def load_data(self, args):
        """Loads the text and the tasks."""
        from common import sentence_evaluation
        from common.datasets import books, plain_text, sentence_tasks
        from skip_thoughts_model import Data

        tasks = {}
        names = ["verses"]
        if args.eval_dir:
            names = [*(args.eval_tasks or sentence_tasks.TASKS)]
            files = [name for name in names if name != "verses"]
            tasks.update(sentence_tasks.load(Path(args.eval_dir), files))
        if "verses" in names:
            verses = sentence_tasks.bible_verses()
            tasks["verses"] = verses.every(10) if args.smoke else verses
        text = books.load(args)
        if args.smoke:
            text = text.first(SMOKE_SENTENCES)
        vectors = sentence_evaluation.check_words(
            tasks, text.words[len(plain_text.MARKS) :], args.word_vectors
        )
        return Data(text, tasks, vectors)

    def sizes(self, data):
        return len(data.books.train), len(data.books.test)

    def check(self, args, data):
        """Refuses sizes that the text does not allow."""
        from common import devices, training
        from common.datasets import books

        updates = books.updates_per_pass(args, data.books)
        if not updates:
            raise InputError(
                f"--batch-size {args.batch_size} is more than the sentences of "
                f"any one length among the {len(data.books.train)} training "
                "sentences"
            )
        training.check_evaluate_every(args, updates)
        devices.held_out(args, len(data.books.test), self.evaluation_batch)

    def make_task(self, args, data):
        import skip_thoughts_model
        from common import devices, training
        from common.datasets import books, plain_text

        text = data.books
        learnt = training.learnt(args, text)
        model = skip_thoughts_model.build_model(
            args.norm,
            args.units,
            args.word_units,
            len(text.words) - len(plain_text.MARKS),
            args.length,
            args.gain,
            args.word_scale,
        )
        skip_thoughts_model.compile_model(model, args.learning_rate)
        updates = books.updates_per_pass(args, learnt)

        def evaluated(part):
            tested, batch = devices.held_out(
                args, len(part.test), self.evaluation_batch
            )
            part = part._replace(test=part.test[:tested])
            return books.in_order(part, batch)

        return training.Task(
            model,
            lambda update: books.batches(
                learnt, args.batch_size, args.seed, updates, update
            ),
            updates,
            evaluated(text),
            evaluated(learnt) if args.tune else None,
            text.words,
            shown=self.shown,
        )

    def watch(self, args, data):
        """Measures the vectors at every evaluation."""
        import skip_thoughts_model
        from common import callbacks

        return [
            callbacks.Measured(
                lambda model: skip_thoughts_model.measure(model, data)
            )
        ]

    def measure_row(self, row):
        return {"test_nll": row["val_nll"]} | {
            name.removeprefix("val_"): value
            for name, value in row.items()
            if name.startswith("val_") and name not in ("val_loss", "val_nll")
        }

    def untrained(self, args, data):
        """The measures of an untrained model's vectors."""
        import skip_thoughts_model

        task = self.make_task(args, data)
        found = {"test_nll": task.evaluate(args)["val_nll"]}
        return found | skip_thoughts_model.measure(task.model, data)

    def floors(self, args, data):
        from common import baselines

        return baselines.of_sentences(data.books, data.tasks)


EXPERIMENT = SkipThoughts(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    without_gain=("none",),
    tuned=("word_scale", (0.1, 0.3, 1.0)),
    embeddings="normal",
    presets=two_presets(
        data=("embedded", "tfds"),  # "tfds" raises an error with instructions.
        epochs=(2, 1),
        batch_size=(64, 64),
        units=(128, 2400),
        learning_rate=(2e-3, 2e-4),
        evaluate_every=(100, 1_000),
        word_units=(64, 620),
        # The papers' uniform numbers in [-0.1, 0.1] have this deviation.
        word_scale=(1.0, 0.06),
        vocabulary=(2_000, 20_000),
        length=(20, 30),
    ),
    smoke={
        "epochs": 2,
        "units": 8,
        "word_units": 8,
        "vocabulary": 200,
        "length": 6,
        "evaluate_every": 4,
    },
    panels=_panels(
        {
            "verses_r10": "verse alignment R@10 (%)",
            "verses_mean_rank": "mean rank of 1000 verses",
            "verses_book_accuracy": "accuracy of books (%)",
        }
    ),
    columns=_columns(VERSE_MEASURES),
    race=NLL,
    progress=UPDATES,
    criterion=NLL,
    examples=("training sentences", "held-out sentences"),
    data_names={"embedded": "King James Bible"},
)

main = functools.partial(cli.run, EXPERIMENT)

if __name__ == "__main__":
    ending.execute(main)
