"""Pictures of two coloured shapes, with captions of growing detail.

Six facts describe a scene: shape, colour and size of an object, its place
relative to a second object with the second object's shape, and the second
object's colour and size. Each caption of a scene has all facts of the caption
before and one more, so that each caption entails the captions before it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

EACH = 5  # Captions of a scene.

SHAPES = ("square", "circle", "triangle", "cross", "ring")
COLOURS = {
    "red": (0.9, 0.1, 0.1),
    "green": (0.1, 0.8, 0.1),
    "blue": (0.2, 0.2, 0.9),
    "yellow": (0.9, 0.8, 0.1),
    "purple": (0.6, 0.1, 0.7),
    "white": (1.0, 1.0, 1.0),
}
SIZES = {"small": 2.6, "big": 4.2}
# The places of the first object, with the step to it from the second object.
PLACES = {"left of": (0, -1), "right of": (0, 1)}
PLACES |= {"above": (-1, 0), "below": (1, 0)}
SIDE = 24  # The side of a picture in pixels.

# The network that sees the pictures has not been trained: random filters,
# and means over the fields of a grid.
_FILTERS, _WINDOW, _GRID = 64, 5, 5
FEATURES = _FILTERS * _GRID**2


class Thing(NamedTuple):
    shape: str
    colour: str
    size: str


class Scene(NamedTuple):
    first: Thing
    place: str
    second: Thing


def generate(
    count: int, random: np.random.Generator
) -> tuple[list[str], np.ndarray]:
    """Captions (5 N) and features (N, D) of random scenes.

    The captions of image n are 5 n to 5 n + 4, with growing length.
    """
    captions, pictures = [], np.empty((count, SIDE, SIDE, 3), np.float32)
    for n in range(count):
        scene = Scene(_thing(random), _choice(PLACES, random), _thing(random))
        captions += describe(scene, random)
        pictures[n] = draw(scene, random)
    return captions, features(pictures)


def _thing(random: np.random.Generator) -> Thing:
    return Thing(*(_choice(part, random) for part in (SHAPES, COLOURS, SIZES)))


def _choice(values, random: np.random.Generator) -> str:
    return [*values][random.integers(len(values))]


def describe(scene: Scene, random: np.random.Generator) -> list[str]:
    """Five captions; the first has two facts, the last has all six."""
    # The second object can be described once it has been mentioned.
    order = [*random.permutation(["colour", "size", "second"])]
    for fact in ("second colour", "second size"):
        after = order.index("second") + 1
        order.insert(random.integers(after, len(order) + 1), fact)
    return [sentence(scene, order[: n + 1]) for n in range(EACH)]


def sentence(scene: Scene, facts: Sequence[str]) -> str:
    """A sentence with the first object's shape and these facts."""
    first, place, second = scene
    words = ["a", *_adjectives(first, "", facts), first.shape]
    if "second" in facts:
        adjectives = _adjectives(second, "second ", facts)
        words += [place, "a", *adjectives, second.shape]
    return " ".join(words)


def _adjectives(thing: Thing, prefix: str, facts: Sequence[str]) -> list[str]:
    pairs = (("size", thing.size), ("colour", thing.colour))
    return [word for name, word in pairs if prefix + name in facts]


def draw(scene: Scene, random: np.random.Generator) -> np.ndarray:
    """A random picture (SIDE, SIDE, 3) with values from 0 to about 1."""
    picture = np.zeros((SIDE, SIDE, 3))
    step = np.array(PLACES[scene.place])
    for thing, side in ((scene.first, 1), (scene.second, -1)):
        # Objects vary less along the line that joins them.
        loose = np.where(step == 0, 4.0, 1.0)
        centre = (SIDE - 1) / 2 + 6.0 * side * step
        centre = centre + random.uniform(-loose, loose)
        y, x = np.indices((SIDE, SIDE)) - centre[:, None, None]
        inside = _inside(thing.shape, SIZES[thing.size], y, x)
        picture[inside] = COLOURS[thing.colour]
    return picture + random.normal(scale=0.03, size=picture.shape)


def _inside(shape: str, radius: float, y: Any, x: Any) -> np.ndarray:
    """Whether points belong to a shape around the origin; y points down."""
    far, near = np.maximum(abs(y), abs(x)), np.minimum(abs(y), abs(x))
    distance = np.hypot(y, x)
    return {
        "square": far <= 0.85 * radius,
        "circle": distance <= radius,
        "triangle": (abs(x) <= (y + radius) / 2) & (y <= radius),
        "cross": (near <= 0.35 * radius) & (far <= radius),
        "ring": (0.5 * radius <= distance) & (distance <= radius),
    }[shape]


def features(pictures: np.ndarray, chunk: int = 100) -> np.ndarray:
    """The network's features (N, FEATURES) of pictures (N, SIDE, SIDE, 3)."""
    size = 3 * _WINDOW**2
    filters = np.random.default_rng(0).normal(size=(size, _FILTERS))
    filters = np.float32(filters / np.sqrt(size))
    found = []
    for i in range(0, len(pictures), chunk):
        windows = sliding_window_view(
            pictures[i : i + chunk], (_WINDOW, _WINDOW), axis=(1, 2)
        )
        count, side = windows.shape[:2]
        seen = np.maximum(windows.reshape(count, side, side, -1) @ filters, 0)
        field = (_GRID, side // _GRID)
        fields = seen.reshape(count, *field, *field, _FILTERS)
        found.append(fields.mean(axis=(2, 4)).reshape(count, FEATURES))
    return np.concatenate(found)
