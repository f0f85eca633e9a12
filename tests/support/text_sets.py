"""Readers of examples/: those of texts and of strokes."""

import re
from pathlib import Path

from common.datasets import books, cloze, sentence_tasks, strokes
from data_sets import SAME, Reader, added, args, holding, latin, swap

FIXTURES = Path(__file__).parents[1] / "examples" / "fixtures"


def fixture(name):
    """The files of a folder, which one file has below lines `==> path <==`."""
    whole = (FIXTURES / f"{name}.txt").read_bytes()
    _, *parts = re.split(rb"^==> (.*) <==\n", whole, flags=re.MULTILINE)

    def make(folder):
        for path, content in zip(parts[::2], parts[1::2], strict=True):
            holding(path.decode(), content)(folder)

    return make


def until(mark):
    return lambda content: content[: content.rindex(mark.encode())]


def no_heading(content):
    return content.partition(b"\n")[2]


def without_strokes(content):
    return re.sub(b"<Stroke .*</Stroke>", b"", content, flags=re.DOTALL)


def first_lines(count):
    return lambda content: b"\n".join(content.split(b"\n")[:count])


# Read by itself it holds out its end, whose words do not count.
TEXT = """\
The rain stopped. "Who goes there?" asked the
guard of the old gate... Nobody answered!

CHAPTER TWO
of the book

Mr. Fox, who'd slept well-nigh all day, came home. He sat down. A b c d e.
A b c. A b. The end.
"""


def make_books(folder):
    holding("b.txt", TEXT.encode())(folder)
    for name, count in (("a.txt", 43), ("sub/c.txt", 3), ("d.txt", 60)):
        holding(name, count * b"Yes. ")(folder)
    holding("notes.md", b"\xff")(folder)


def read_books(folder):
    whole = books.load(args(folder))
    return [
        *(whole, whole.first(60), whole.first(1000), whole.held_out()),
        books.load(args(folder, vocabulary=4)),
        books.load(args(folder / "b.txt", length=4)),
        books.load(args(folder / "b.txt", length=5)).first(9),
    ]


BOOKS = Reader(
    make_books,
    read_books,
    "93e6d28d791c",
    {
        "b.txt": {
            b"One. Two.\n": "expected at least 3 sentences, received 2",
            latin: "cannot be read: 'utf-8' codec can't decode byte 0xe9",
        }
    },
    # A byte order mark means nothing.
    {"b.txt": {f"\ufeff{TEXT}".encode(): SAME}},
)


def read_cloze(folder):
    return [
        cloze.read(folder / "questions" / split)
        for split in ("training", "validation", "test")
    ] + [
        cloze.load(args(folder, **flags))
        for flags in ({}, {"words": 3}, {"sentences": 1, "entities": 2})
    ]


TRAINING, VALIDATION = (
    f"questions/{name}.question"
    for name in ("training/0a1f", "validation/3d4c")
)
CLOZE = Reader(
    fixture("cloze"),
    read_cloze,
    "b71e57e8abe6",
    {
        TRAINING: {
            b"": "expected five parts with blank lines .* received 1",
            swap("\n\n@entity4\n", "\n"): "five parts .* received 4",
            swap("\n\n@entity4\n", "\n\n\n"): "received 5, of which 1 are em",
            swap("@placeholder", "him"): "expected @placeholder in the query",
            swap("@entity4:", "@entity5:"): "an answer among .* '@entity4'",
            added("Newtown\n"): "expected lines such as @entity0:Name",
        },
        VALIDATION: {None: r"there is no .*/validation/\*.question"},
    },
)

FORM = "ascii/a01/a01-000/a01-000u.txt"
LINE = "lineStrokes/b02/b02-010/b02-010z-01.xml"
LONG = "lineStrokes/a01/a01-000/a01-000u-02.xml"
NO_STROKES = "has no strokes of points x and y: "
POINT = '<Point x="1100" y="1081" time="700.06"/>'
IAM = Reader(
    fixture("iam_ondb"),
    lambda folder: [
        [*strokes.lines(folder, "trainset.txt")],
        *(strokes.load(args(folder, length=length)) for length in (500, 4)),
    ],
    "b694b1bdcbf5",
    {
        "trainset.txt": {
            None: "cannot be read",
            b"z99-999": r"form z99-999, but there is no ascii/\*\*/z99",
            latin: "names the form café, but there is no",
        },
        FORM: {
            until("CSR:"): "has 0 lines of text below CSR:",
            until("Mr."): "has 1 lines .* none for a01-000u-02.xml",
        },
        LINE: {
            None: "there is no .*b02-010/b02-010z-",
            b"": f"{NO_STROKES}ParseError",
            without_strokes: f"{NO_STROKES}ValueError",
            swap('x="', 'z="'): f"{NO_STROKES}KeyError",
            swap('x="', 'x="a'): f"{NO_STROKES}ValueError.* float: 'a",
            swap('x="', 'x="nan" was="'): f"{NO_STROKES}.*that are finite",
            swap('x="', 'x="1e39" was="'): f"{NO_STROKES}.*that are finite",
        },
    },
    {
        # Transcripts are in Latin-1 or in UTF-8.
        FORM: {
            swap("to", "tô"): "265e446668d2",
            lambda content: content.replace(b"to", b"t\xf4"): "265e446668d2",
        },
        # A form may be named with or without its writer.
        "trainset.txt": {b"a01-000w\n": "41c1270e9786"},
        # The longest line gives the length of all.
        LONG: {swap("</Stroke>", 3 * POINT + "</Stroke>", 1): "e50ea82ee80e"},
    },
)

SICK = Reader(
    fixture("sentence_tasks"),
    lambda folder: sentence_tasks.load(folder, [*sentence_tasks.FILES]),
    "37c33624418e",
    {
        "SICK_train.txt": {
            swap("\t4.7\t", "\t\t", 1): r"line 2: expected .*\(from 1 to 5",
            swap("\t4.7\t", "\t5.5\t", 1): r"line 2: expected .*\(from 1 to 5",
        },
        "SICK_trial.txt": {
            None: "has no SICK_trial.txt, which the task sick",
            swap("\t3.2\t", "\t", 1): "line 3: expected .* with tabs",
            no_heading: "line 2: expected .* below their names in line 1",
            first_lines(2): "needs pairs with at least 2 different scores",
        },
        "custrev.neg": {None: "has no custrev.neg, which the task cr needs"},
        "mpqa.pos": {first_lines(11): "has 11 sentences; nested 10-fold"},
    },
    {
        # These files are in Latin-1 or in UTF-8.
        "rt-polarity.pos": {
            lambda content: content.decode("latin-1").encode(): SAME
        },
        "mpqa.pos": {first_lines(12): "1062e64a0cbc", added("\n\n\r\n"): SAME},
    },
)

VECTORS = """\
4 3
</s> 0.25 0.5 -1.0 
The 1.0 2.0 3.0 
the 9.0 9.0 9.0 
Wörter -0.5 1e-3 4 
"""  # noqa: W291  (word2vec ends its lines with a space)
VECTOR = "cannot be read as word2vec's text format .*: "
WORD_VECTORS = Reader(
    holding("vectors.txt", VECTORS.encode()),
    # The first spelling counts.
    lambda folder: sentence_tasks.read_word_vectors(
        folder / "vectors.txt", {"the", "wörter", "absent"}
    ),
    "eaf5bd444b04",
    {
        "vectors.txt": {
            None: f"{VECTOR}.*No such file",
            b"": f"{VECTOR}not enough values",
            swap("4 3\n", ""): VECTOR,
            swap("4 3\n", "4 0\n"): f"{VECTOR}3 numbers in line 2",
            swap("4 3\n", "0 3\n"): f"{VECTOR}4 words",
            swap("2.0 3.0", "2.0"): f"{VECTOR}2 numbers in line 3",
            added("more 1 2 3 4\n"): f"{VECTOR}4 numbers in line 6",
            swap("4 3", "5 3"): f"{VECTOR}4 words",
            swap("2.0", "two"): f"{VECTOR}could not convert string to float",
            swap("2.0", "nan"): f"{VECTOR}array must not contain infs or NaNs",
        }
    },
)

READERS = {
    "books": BOOKS,
    "cloze": CLOZE,
    "iam_ondb": IAM,
    "sentence_tasks": SICK,
    "word_vectors": WORD_VECTORS,
}
