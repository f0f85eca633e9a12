"""Readers of examples/: a small data set, what is read, what is refused.

Those of images and features; `text_sets` and `packaged_data` have others.
"""

import codecs
import gzip
import hashlib
import io
import pickle
import struct
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common.datasets import binarized_mnist, captions, coco, mnist

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
    # Of `EVERY` what the format cannot show.
    unseen: Sequence[Any] = ()


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


EVERY = (None, b"", half, latin, evil)


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
    given |= {"smoke": False, "fold": 1}
    given |= {"length": 30, "vocabulary": 100}
    given |= {"sentences": 4, "words": 100, "entities": 9}
    return Namespace(**given | flags)


def images(count, *shape):
    return np.random.default_rng(0).integers(0, 256, (count, *shape), np.uint8)


def idx(magic, content):
    """A published file of MNIST, before it is compressed."""
    sizes = struct.pack(f">{1 + content.ndim}I", magic, *content.shape)
    return sizes + content.tobytes()


def packed(magic, content):
    return gzip.compress(idx(magic, content))


def make_mnist(folder):
    for index, count in ((0, 7), (2, 4)):
        one, two = (folder / name for name in mnist.ARCHIVES[index : index + 2])
        one.write_bytes(packed(2051, images(count, 3, 3)))
        two.write_bytes(packed(2049, np.arange(count, dtype="u1")))


def flipped(content):
    found = bytearray(content)
    found[len(content) // 2] ^= 255
    return bytes(found)


IMAGES, LABELS = mnist.ARCHIVES[0], mnist.ARCHIVES[3]
SEVEN = idx(2051, images(7, 3, 3))
NO_GZIP = "is no whole gzip file"
SIZES = "should have 79 bytes for its sizes .* found"
MNIST = Reader(
    make_mnist,
    lambda folder: mnist.parts(args(folder)),
    "63f03b153c32",
    {
        IMAGES: {
            None: "does not exist",
            b"": "ends before its 16 header bytes",
            gzip.compress(b"\0\0"): "ends before its 16 header bytes",
            half: NO_GZIP,
            without(12): NO_GZIP,
            latin: NO_GZIP,
            evil: NO_GZIP,
            b"<html>not found</html>": NO_GZIP,
            flipped: NO_GZIP,
            gzip.compress(bytes(mnist.LARGEST + 1), 1): "more than 256 MiB",
            packed(2050, images(7, 3, 3)): "start with the number 2051, found",
            packed(2051, images(7, 2, 3)): f"{mnist.ARCHIVES[2]} has images "
            "of 3 x 3 pixels, .*images.* of 2 x 3",
            packed(2051, images(0, 3, 3)): "expected images, received none",
            packed(2051, images(7, 0, 3)): "expected images, received none",
            gzip.compress(SEVEN[:-1]): f"{SIZES} 78",
            gzip.compress(SEVEN + b"0"): f"{SIZES} 80",
        },
        LABELS: {
            None: "does not exist",
            gzip.compress(b"\0\0"): "ends before its 8 header bytes",
            packed(2049, np.arange(5, dtype="u1")): "has 5 labels for 4 images",
            packed(2049, np.uint8([1, 2, 3, 10])): "has a label 10, not in 0 ",
        },
    },
)

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


NO_NPY = "is no whole .npy file"
PER_IMAGE = "should have a row of features per image, found the shape"
CAPTIONS = Reader(
    make_captions,
    lambda folder: [
        captions.load(args(folder, length=length)) for length in (30, 4)
    ],
    "ad8c22dd2a1e",
    {
        "train_ims.npy": {
            array(lambda x: x[:2]): "of the 2 images in .*train.*, found 15",
        },
        "train_caps.txt": {
            added("one more\n"): "should have 5 captions for each of the 3 "
            "images in .*train_ims.npy, found 16"
        },
        "dev_ims.npy": {
            None: "does not exist",
            b"": NO_NPY,
            half: NO_NPY,
            without(9): NO_NPY,
            pickled({}): NO_NPY,
            evil: NO_NPY,
            arrays(features=np.eye(2, 6)): NO_NPY,
            array(not_a_number): "image 2 has a feature that is not finite",
            array(too_large): "image 1 has a feature that is not finite",
            array(lambda x: x[0]): rf"{PER_IMAGE} \(6,\) of float32",
            array(lambda x: x[:0]): rf"{PER_IMAGE} \(0, 6\) of float32",
            array(np.int64): rf"{PER_IMAGE} \(2, 6\) of int64",
        },
        "dev_caps.txt": {
            half: "should have 5 captions .*, found 5",
            swap(SENTENCES[6], " "): "caption 7 is empty",
            latin: "is not in UTF-8",
            evil: "is not in UTF-8",
        },
        "test_caps.txt": {
            None: "does not exist",
            b"": "captions .*, found 1",
        },
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


def make_coco(folder):
    """What `coco.keep` writes."""
    features = np.random.default_rng(0).random((2, 3), np.float32)
    texts = np.frombuffer("\n".join(SENTENCES[:10]).encode(), np.uint8)
    np.savez(
        folder / "val.npz",
        **{"network": coco.NETWORK, "captions": texts, "features": features},
    )


CAPTION = np.frombuffer(b"a", np.uint8)
ANEW = r"cannot be read \(.*\); remove the file"
COCO = Reader(
    make_coco,
    lambda folder: coco.read(folder / "val.npz"),
    "8b4415161b72",
    {
        "val.npz": {
            None: ANEW,
            b"": ANEW,
            half: ANEW,
            lambda content: content[:200]: ANEW,
            evil: ANEW,
            arrays(features=[[Command()]]): ANEW,
            arrays(captions=np.uint8([233, 10])): ANEW,
            arrays(network="ResNet50"): "are of ResNet50, expected VGG19",
            arrays(captions=CAPTION): "captions should have 5 .*, found 1",
            arrays(features=CAPTION): rf"features {PER_IMAGE} \(1,\) of uint8",
        }
    },
    # The end of an archive is found before what follows.
    unseen=(latin,),
)

READERS = {
    "mnist": MNIST,
    "binarized_mnist": MNIST._replace(
        read=lambda folder: binarized_mnist.load(args(folder)),
        digest="9ff15168b1d1",
    ),
    "captions": CAPTIONS,
    "coco": COCO,
}
