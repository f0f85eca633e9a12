"""Does layer normalisation help with tasks such as mine?

Common tasks (--task), each with these layers to choose from:

    lstm, lnlstm, bnlstm  LSTM, with layer or with batch normalisation
    gru, lngru            GRU, with layer normalisation

    addition     "12+345" to "357", character by character, as at keras.io
    characters   the next character of the King James Bible
    long_memory  the sum of two marked numbers out of 200
    verses       the book (of ten) that a verse is from; without bnlstm,
                 because lengths differ
    forecast     a chaotic series (Mackey and Glass) 50 steps ahead
    spelling     the sounds of an English word (CMU Pronouncing Dictionary)
    movements    the exercise that the wearer of a watch does
    chorales     the next chord of a chorale of Bach

The data of the last three are in packages, and their lengths differ too:
pip install '.[evidence]'.

All models are trained by Adam with a rate that falls to zero, and with
gradients clipped to a norm of 1.
"""

import argparse
import math
import sys

from common import ending, flags
from common.errors import InputError
from common.report import Panel
from everyday_tasks import NAMES, PADDED, TASKS, load

KINDS = ("lstm", "lnlstm", "gru", "lngru", "bnlstm")
PERSONS = 8  # Every seed of the movements tests another person.


def parse(argv=None):
    """The flags; those of --task have its sizes as presets."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--task", nargs="?")
    argv = sys.argv[1:] if argv is None else argv
    task = first.parse_known_args(argv)[0].task
    task = task if task in TASKS else "addition"  # Refused below.
    epochs, batch_size, units, rate, examples, _ = TASKS[task]
    presets = {
        "data": ("embedded", "embedded"),
        "task": (task, task),
        "epochs": (epochs, epochs, 2),
        "batch_size": (batch_size, batch_size),
        "units": (units, units, 8),
        "learning_rate": (rate, rate),
        "examples": (examples, examples, 480),
    }
    kinds = KINDS[:-1] if task in PADDED else KINDS
    args = flags.parse(
        *(__file__, __doc__, kinds, presets, argv),
        own=[
            flags.choice("task", "the task (default: addition)", [*TASKS]),
            flags.count("examples", "number; a twelfth is for testing"),
            flags.FORGET_STEPS,
        ],
        default="lnlstm",
        part=f"-{task}",
    )
    if args.data != "embedded":
        raise InputError(f"expected --data embedded, received {args.data}")
    tested = {seed % PERSONS for seed in args.varied["seed"]}
    if args.task == "movements" and len(tested) < len(args.varied["seed"]):
        raise InputError(
            f"--seed: expected seeds that test different persons; seeds "
            f"{PERSONS} apart test the same; received {args.varied['seed']}"
        )
    return args


def main(argv=None):
    args = parse(argv)

    import keras
    from common import report, runs
    from everyday_model import build_model, measured, outputs

    whole = load(args.task, args.examples)
    for run in runs.of(args, examples=len(whole.held_out().x)):
        with run:
            data = whole.fold(run.seed)
            learnt = data.held_out()
            model = build_model(
                *(run.norm, run.units, run.task, data.x.shape[1]),
                *(data.tokens and len(data.tokens), outputs(run.task, data)),
                *(run.gain, run.forget_steps),
            )
            if data.tokens:
                run.write_words(data.tokens)
            loss, metrics = measured(run.task, data)
            rate = keras.optimizers.schedules.CosineDecay(
                run.learning_rate, run.epochs * run.steps
            )
            model.compile(
                keras.optimizers.Adam(rate, global_clipnorm=1.0),
                loss,
                metrics=metrics,
                # XLA's random numbers take long on a CPU: without it an epoch
                # of chorales takes a fifth of the time.
                **(run.speed if run.task != "chorales" else {}),
            )
            model.fit(
                run.batches(learnt.x, learnt.y),
                steps_per_epoch=run.steps,
                shuffle=False,
                epochs=run.epochs,
                validation_data=(learnt.test_x, learnt.test_y),
                validation_batch_size=400,
                callbacks=run.callbacks(model, *run.fresh_statistics(learnt.x)),
                verbose=run.verbose,
            )
            found = model.evaluate(
                *(data.test_x, data.test_y, 400), verbose=0, return_dict=True
            )
            # In percent, or an RMSE.
            error = 100 * (1 - found.get("accuracy", 0))
            if "accuracy" not in found:
                error = math.sqrt(found["loss"])
            found = {"test_loss": found["loss"], "test_error": error}
            run.finish(found | {"train_loss": run.last["loss"]})
    name, unit, wrong = NAMES[args.task]
    held_out = Panel(f"validation {unit}", "val_loss", log=True)
    panels = (Panel(f"training {unit}", "loss", log=True), held_out)
    columns = {
        f"training {unit}": "train_loss",
        f"test {unit}": "test_loss",
        wrong: "test_error",
    }
    title = f"{name}, {len(whole.held_out().x):,} training examples"
    return report.draw(
        *(args, panels, columns, title), race=held_out, progress="updates"
    )


if __name__ == "__main__":
    ending.execute(main)
