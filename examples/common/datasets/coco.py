"""COCO's captions, and its images as an image network's features.

Captions and splits are from `coco_captions` in tensorflow-datasets
(Karpathy and Li, 2015). The features are as in Vendrov et al. (2016): layer
fc7 of VGG19, the mean over ten crops. They are computed once and kept beside
the data set.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from common import files
from common.datasets import published
from common.datasets.captions import EACH, Part, check_part
from common.errors import InputError

DATA_SET = "coco_captions"
ARCHIVES = (
    "train2014.zip",
    "val2014.zip",
    "test2014.zip",
    "test2015.zip",
    "annotations_trainval2014.zip",
    "image_info_test2014.zip",
    "image_info_test2015.zip",
    "caption_datasets.zip",
)
SOURCE = (
    "http://images.cocodataset.org/annotations/annotations_trainval2014.zip"
)

# As in the paper, all other images are for training.
PARTS = (("train", "restval"), ("val",), ("test",))

# The kind of the kept features; other kinds are refused.
NETWORK = "VGG19 (ImageNet), fc7, mean of 10 crops"
SHORT_SIDE, CROP = 256, 224

Network = Callable[[np.ndarray], np.ndarray]


def load(data_dir: str | None) -> list[Part]:
    """Captions and features for training, validation and testing."""
    import tensorflow_datasets as tfds

    folder = Path(data_dir or tfds.core.constants.DATA_DIR).expanduser()
    kept = {
        split: folder / f"{DATA_SET}_vgg19_fc7" / f"{split}.npz"
        for splits in PARTS
        for split in splits
    }
    network = None
    for split, path in kept.items():
        if path.exists():
            read(path)
            continue
        if network is None:
            # Prepares the data set or raises an error with the reason.
            published.load(DATA_SET, (), data_dir, ARCHIVES, SOURCE)
            network = vgg19()
        dataset = tfds.builder(DATA_SET, data_dir=folder).as_dataset(
            split=split
        )
        print(f"Computing {path}.")
        keep(path, tfds.as_numpy(dataset), network)
    parts = []
    for splits in PARTS:
        captions, features = zip(*(read(kept[s]) for s in splits), strict=True)
        parts.append((sum(captions, []), np.concatenate(features)))
    return parts


def keep(
    path: Path, examples: Iterable[dict[str, Any]], network: Network
) -> None:
    """Computes the features of a split and writes them, whole or not at all."""
    captions, features = [], []
    for example in examples:
        texts = [text.decode() for text in example["captions"]["text"]]
        if len(texts) < EACH:
            raise InputError(
                f"{example['image/filename'].decode()} has {len(texts)} "
                f"captions, expected {EACH}"
            )
        captions += [tokens(text) for text in texts[:EACH]]
        features.append(network(crops(example["image"])).mean(axis=0))
    features = np.array(features, np.float32)
    check_part(f"{path}: features", features, f"{path}: captions", captions)
    with files.replacing(path) as partial:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            np.savez(
                file,
                network=NETWORK,
                # In an array of texts each would be as long as the longest.
                captions=np.frombuffer("\n".join(captions).encode(), np.uint8),
                features=features,
            )


def read(path: Path) -> tuple[list[str], np.ndarray]:
    """Reads a file of `keep`."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            network, features = str(file["network"]), file["features"]
            captions = file["captions"].tobytes().decode().split("\n")
    except Exception as error:  # Of zipfile, zlib and NumPy.
        raise InputError(
            f"the features {path} cannot be read ({error}); remove the file "
            "to compute them again"
        ) from error
    if network != NETWORK:
        raise InputError(
            f"the features {path} are of {network}, expected {NETWORK}; "
            "remove the file to compute them again"
        )
    check_part(f"{path}: features", features, f"{path}: captions", captions)
    return captions, features


def tokens(text: str) -> str:
    """The words of a sentence in lower case, without punctuation."""
    return " ".join(re.findall(r"\w+(?:'\w+)*", text.lower()))


def crops(image: np.ndarray) -> np.ndarray:
    """Corners and centre, plain and mirrored (10, CROP, CROP, 3) float32.

    Args:
        image: (height, width, 3) uint8; its shorter side is made SHORT_SIDE.
    """
    from PIL import Image

    height, width = image.shape[:2]
    scale = SHORT_SIDE / min(height, width)
    size = max(round(width * scale), CROP), max(round(height * scale), CROP)
    resized = Image.fromarray(image).resize(size, Image.Resampling.BILINEAR)
    pixels = np.asarray(resized, np.float32)
    bottom, right = pixels.shape[0] - CROP, pixels.shape[1] - CROP
    places = [(0, 0), (0, right), (bottom, 0), (bottom, right)]
    places.append((bottom // 2, right // 2))
    found = np.array([pixels[y : y + CROP, x : x + CROP] for y, x in places])
    return np.concatenate([found, found[:, :, ::-1]])


def vgg19(weights: str | None = "imagenet") -> Network:
    """VGG19 from crops (n, 224, 224, 3) to layer fc7 (n, 4096)."""
    try:
        whole = keras.applications.VGG19(weights=weights)
    except Exception as error:  # Of urllib, h5py and Keras.
        raise InputError(
            "the weights of keras.applications.VGG19 cannot be loaded: "
            + str(error).strip().splitlines()[0]
        ) from error
    # Keras' name of fc7, with its rectification.
    model = keras.Model(whole.input, whole.get_layer("fc2").output)

    def network(images):
        # Not in place: the crops may be needed again.
        ready = keras.applications.vgg19.preprocess_input(np.copy(images))
        return model.predict_on_batch(ready)

    return network
