"""Readers of examples/: those of texts and of strokes."""

import re
from pathlib import Path

from common.datasets import (
    books,
    cloze,
    iam_ondb,
    question_files,
    sentence_tasks,
    strokes,
)
from data_sets import (
    FOLDER,
    SAME,
    Reader,
    added,
    args,
    evil,
    half,
    holding,
    latin,
    swap,
    without,
)

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
            None: "cannot be read",
            b"": "has 0 sentences; one between two others needs at least 3",
            b"One.": "has 1 sentence; one between",
            b"One. Two.\n": "has 2 sentences",
            b"One.\nTwo caf\xe9s.\n": "line 2: expected UTF-8, .* byte 0xe9",
            "One.".encode("utf-16"): "line 1: expected UTF-8, .* byte 0xff",
            latin: "line 9: expected UTF-8, received the byte 0xe9",
            evil: "line 1: expected UTF-8, received the byte 0x80",
        },
    },
    # A byte order mark means nothing.
    {"b.txt": {f"\ufeff{TEXT}".encode(): SAME}},
    # Half a text is one.
    unseen=(half,),
)


def read_cloze(folder):
    return [
        [*question_files.read_split(folder, split)]
        for split in ("train", "validation", "test")
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
    "9988f3157016",
    {
        TRAINING: {
            b"": "has 1 parts with blank lines between instead of 5 ",
            half: "has 2 parts with blank lines between",
            evil: "is not in UTF-8",
            swap("\n\n@entity4\n", "\n"): "has 4 parts with blank lines",
            swap("\n\n@entity4\n", "\n\n\n"): "the answer is empty",
            b"address\n\n\n\nq\n\na\n\n@entity0:A": "the passage is empty",
            swap("@placeholder", "him"): "the query has no @placeholder",
            swap("@entity4:", "@entity5:"): "'@entity4' is not among the en",
            added("Newtown\n"): "such as @entity0:Name .* 'Newtown'",
        },
        VALIDATION: {
            None: r"there is no .*/validation/\*.question",
            latin: "is not in UTF-8",
            FOLDER: "cannot be read",
        },
    },
)

FORM = "ascii/a01/a01-000/a01-000u.txt"
LINE = "lineStrokes/b02/b02-010/b02-010z-01.xml"
LONG = "lineStrokes/a01/a01-000/a01-000u-02.xml"
POINT = '<Point x="1100" y="1081" time="700.06"/>'
IAM = Reader(
    fixture("iam_ondb"),
    lambda folder: [
        [*iam_ondb.lines(folder, "train")],
        *(strokes.load(args(folder, length=length)) for length in (500, 4)),
    ],
    "8a5f0fbbbfbe",
    {
        "trainset.txt": {
            None: "does not exist",
            b"z99-999": r"form z99-999, but there is no ascii/\*\*/z99",
            latin: "names the form café, but there is no",
            evil: "names the form .*, but there is no",
        },
        FORM: {
            until("CSR:"): "has no lines of text below CSR:",
            b"": "has no lines of text below CSR:",
            half: "has no lines of text below CSR:",
            until("Mr."): "has 1 lines and none for a01-000u-02.xml",
        },
        LINE: {
            None: "there is no .*b02-010/b02-010z-",
            b"": "is no whole XML file",
            without(40): "is no whole XML file",
            evil: "is no whole XML file",
            without_strokes: "has no strokes",
            swap('x="', 'z="'): "has a point without numbers x and y: 'x'",
            swap('x="', 'x="a'): "has a point without numbers x and y: cou",
            swap('x="', 'x="nan" was="'): "has a point whose x or y is not",
            swap('x="', 'x="1e39" was="'): "has a point whose x or y is not",
        },
    },
    {
        # Transcripts are in Latin-1 or in UTF-8.
        FORM: {
            swap("to", "tô"): "3ebbfb38d569",
            lambda content: content.replace(b"to", b"t\xf4"): "3ebbfb38d569",
        },
        # A form may be named with or without its writer.
        "trainset.txt": {b"a01-000w\n": "67953799834e"},
        # The longest line gives the length of all.
        LONG: {swap("</Stroke>", 3 * POINT + "</Stroke>", 1): "7de7c9b1e85b"},
    },
)

SICK = Reader(
    fixture("sentence_tasks"),
    lambda folder: sentence_tasks.load(folder, sentence_tasks.TASKS),
    "37c33624418e",
    {
        "SICK_train.txt": {
            swap(
                "\t4.7\t", "\t\t", 1
            ): "line 2: expected a relatedness score from 1 ",
            swap("\t4.7\t", "\t5.5\t", 1): "line 2: .* received '5.5'",
            "One\t".encode("utf-16"): "expected UTF-8, received a byte of 0",
            evil: "expected UTF-8, received a byte of 0",
        },
        "SICK_trial.txt": {
            None: "has no SICK_trial.txt, which the task sick",
            b"": "line 1: expected",
            half: "line 5: expected 5 columns .* received 3",
            swap(
                "\t3.2\t", "\t", 1
            ): "line 3: expected 5 columns .* received 4",
            no_heading: "line 1: expected .* among them sentence_A",
            first_lines(2): "needs pairs with at least 2 different scores",
        },
        "custrev.neg": {
            None: "has no custrev.neg, which the task cr needs",
            b"": "has 0 sentences; nested 10-fold cross-validation needs at",
            evil: "expected UTF-8, received a byte of 0",
        },
        "mpqa.pos": {
            first_lines(11): "has 11 sentences; nested 10-fold",
            half: "sentences; nested 10-fold",
        },
    },
    {
        # These files are in Latin-1 or in UTF-8.
        "rt-polarity.pos": {
            lambda content: content.decode("latin-1").encode(): SAME
        },
        "mpqa.pos": {
            first_lines(12): "1062e64a0cbc",
            added("\n\n\r\n"): SAME,
        },
    },
    unseen=(latin,),
)

VECTORS = """\
4 3
</s> 0.25 0.5 -1.0 
The 1.0 2.0 3.0 
the 9.0 9.0 9.0 
Wörter -0.5 1e-3 4 
"""  # noqa: W291  (word2vec ends its lines with a space)
HEADING = "line 1: expected the number of words and the size of their vectors"
WORD_VECTORS = Reader(
    holding("vectors.txt", VECTORS.encode()),
    # The first spelling counts.
    lambda folder: sentence_tasks.read_word_vectors(
        folder / "vectors.txt", {"the", "wörter", "absent"}
    ),
    "eaf5bd444b04",
    {
        "vectors.txt": {
            None: "cannot be read: .*No such file",
            b"": HEADING,
            half: "says that it has 4 words and has 2",
            evil: HEADING,
            swap("4 3\n", ""): HEADING,
            swap("4 3\n", "4 0\n"): HEADING,
            swap("4 3\n", "0 3\n"): HEADING,
            swap(
                "2.0 3.0", "2.0"
            ): "line 3: expected a word and 3 numbers, received 2",
            added("more 1 2 3 4\n"): "line 6: .* received 4",
            swap("4 3", "5 3"): "says that it has 5 words and has 4",
            swap("2.0", "two"): "line 3: expected finite numbers after the w",
            swap("2.0", "nan"): "line 3: expected finite numbers after the w",
        }
    },
    # Words may hold any byte but a space.
    unseen=(latin,),
)

READERS = {
    "books": BOOKS,
    "cloze": CLOZE,
    "iam_ondb": IAM,
    "sentence_tasks": SICK,
    "word_vectors": WORD_VECTORS,
}
