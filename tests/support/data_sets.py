"""Readers of examples/: a small data set, what is read, what is refused.

Those of images and features; `text_sets` and `packaged_data` have others.
"""

import codecs
import hashlib
import io
import pickle
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common.datasets import captions

SAME = None
FOLDER = "folder"


class Reader(NamedTuple):
    """A reader.

    A change of a file is other content, a function of it, None where the file
    is missing, or FOLDER. A new digest is written down once what is read has
    been looked at.
    """

    make: Callable[[Path], Any]  # writes the data set into a folder
    read: Callable[[Path], Any]
    digest: str
    # For each file changes of it, with words of the error, which names it.
    faults: Mapping[str, Mapping[Any, str]]
    # Changes that are no faults, with the digest then, or `SAME`.
    good: Mapping[str, Mapping[Any, str | None]] = {}


def change(path, how):
    """Changes a file."""
    content = path.read_bytes()
    path.unlink()
    if how is FOLDER:
        path.mkdir()
    elif how is not None:
        path.write_bytes(how(content) if callable(how) else how)


def holding(name, content):
    def make(folder):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return make


def half(content):
    return content[: len(content) // 2]


def without(count):
    """Without so many bytes at the end."""
    return lambda content: content[:-count]


def added(text):
    return lambda content: content + text.encode()


def latin(content):
    return content + "café\n".encode("latin-1")


def pickled(content):
    """What NumPy saves of a dictionary."""
    file = io.BytesIO()
    np.save(file, np.array(content, dtype=object), allow_pickle=True)
    return file.getvalue()


class Command:
    """What runs a command where pickle is trusted."""

    def __reduce__(self):
        return exec, ("import os; os.environ['EXECUTED'] = 'yes'",)


def evil(content):
    """Pickled by itself or, where an array was, as NumPy does it."""
    if content[:6] == b"\x93NUMPY":
        return pickled(Command())
    return pickle.dumps(Command())


def swap(old, new, count=-1):
    """Other text in place of some."""
    return lambda content: content.replace(old.encode(), new.encode(), count)


def array(function):
    """Of the content of a .npy file."""

    def changed(content):
        file = io.BytesIO()
        np.save(file, function(np.load(io.BytesIO(content))))
        return file.getvalue()

    return changed


def arrays(**other):
    """Other arrays in a .npz file."""

    def changed(content):
        file = io.BytesIO()
        found = np.load(io.BytesIO(content))
        found = dict(found) if isinstance(found, Mapping) else {}
        np.savez(file, **found | other)
        return file.getvalue()

    return changed


def digest(value):
    """Of arrays, their floats to four decimals, texts and numbers."""
    found = hashlib.sha256()

    def add(value):
        if isinstance(value, np.ndarray):
            found.update(f"{value.dtype} {value.shape}:".encode())
            if value.dtype.kind == "f":
                value = np.round(value.astype(np.float64), 4) + 0.0
            found.update(value.tobytes())
        elif isinstance(value, dict):
            add([*value.items()])
        elif isinstance(value, list | tuple):
            found.update(f"{len(value)}:".encode())
            for own in value:
                add(own)
        elif isinstance(value, frozenset):
            add(sorted(value))
        elif isinstance(value, np.generic):  # NumPy 1 and 2 show them apart.
            add(value.item())
        else:
            found.update(f"{value!r}:".encode())

    add(value)
    return found.hexdigest()[:12]


def args(folder, **flags):
    """The flags that a reader may look at."""
    given = {"data": str(folder), "data_dir": None, "distribute": "none"}
    given |= {"smoke": False, "fold": 1, "examples": None}
    given |= {"length": 30, "vocabulary": 100}
    given |= {"sentences": 4, "words": 100, "entities": 9}
    return Namespace(**given | flags)


SENTENCES = [
    f"a {colour} {thing} on the {place} ."
    for thing in ("cat", "dog", "bus")
    for colour, place in zip(
        ("red", "black", "white", "old", "big"),
        ("sofa", "street", "street", "sofa", "street"),
        strict=True,
    )
]


def make_captions(folder):
    """The files as Vendrov et al. published them."""
    random = np.random.default_rng(0)
    for split, count in (("train", 3), ("dev", 2), ("test", 1)):
        features = random.random((count, 6), np.float32) - np.float32(0.3)
        features[2:] = 0
        np.save(folder / f"{split}_ims.npy", features)
        lines = "".join(f"{line}\n" for line in SENTENCES[: 5 * count])
        (folder / f"{split}_caps.txt").write_text(lines)


def scaled(dtype, size):
    return array(lambda x: (x * np.float64(size)).astype(dtype))


def not_a_number(features):
    features[1, 4] = np.nan
    return features


def too_large(features):
    return np.longdouble(features) * np.longdouble("1e4000")


NO_NPY = "cannot be read"
LINES = "should have 5 captions with words for each of the"
PER_IMAGE = "should have a row of features per image, found the shape"
CAPTIONS = Reader(
    make_captions,
    lambda folder: [
        captions.load(args(folder, length=length)) for length in (30, 4)
    ],
    "ad8c22dd2a1e",
    {
        "train_ims.npy": {
            array(lambda x: x[:2]): "of the 2 images in .*train.*, found 15"
        },
        "train_caps.txt": {
            added("one more\n"): f"{LINES} 3 images in .*train_.*, found 16"
        },
        "dev_ims.npy": {
            None: NO_NPY,
            without(9): NO_NPY,
            evil: NO_NPY,
            arrays(features=np.eye(2, 6)): NO_NPY,
            array(not_a_number): "has a feature that is not finite",
            array(too_large): "has a feature that is not finite",
            array(lambda x: x[0]): rf"{PER_IMAGE} \(6,\) of float32",
            array(lambda x: x[:0]): rf"{PER_IMAGE} \(0, 6\) of float32",
            array(np.int64): rf"{PER_IMAGE} \(2, 6\) of int64",
        },
        "dev_caps.txt": {
            swap(SENTENCES[6], " "): f"{LINES} .*, of which 1 are empty",
            latin: "cannot be read: 'utf-8'",
        },
        "test_caps.txt": {b"": "captions .*, found 1"},
    },
    {
        # Words that training lacks are unknown.
        "test_caps.txt": {swap("red cat", "pink cat"): "9b824a36333a"},
        # Long captions are cut, and short ones filled.
        "dev_caps.txt": {
            swap(SENTENCES[3], "cat"): "c95ea9be2ddd",
            swap(SENTENCES[3], " and ".join(5 * ["cat"])): "a5c6ba2de38d",
        },
        "train_caps.txt": {codecs.BOM_UTF8.__add__: SAME},
        # Features of any size are scaled to length one. No denormals:
        # frameworks may have the processor take them for zero.
        "train_ims.npy": {
            scaled("f2", 1e4): "f6e751529e43",
            scaled("f4", 1e25): SAME,
            scaled("f4", 1e-30): SAME,
            scaled("f8", 1e60): SAME,
            scaled("f8", 1e-200): SAME,
        },
    },
)


READERS = {"captions": CAPTIONS}
