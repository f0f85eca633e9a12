"""Data sets that tensorflow-datasets prepares."""

import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import InputError

# An address of each data set, asked before it is prepared: without a network
# tensorflow-datasets would try for minutes.
_SOURCES = {
    "mnist": "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "binarized_mnist": "http://www.cs.toronto.edu/~larocheh/public/datasets/",
    "cifar10": "https://www.cs.toronto.edu/~kriz/",
}
_SECONDS = 5  # The time limit for a server's answer.


def load(
    data_set: str, splits: Sequence[str], data_dir: str | None
) -> list[dict[str, Any]]:
    """Loads whole splits as NumPy arrays; prepares the data set if needed."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise InputError(
            "--data tfds needs tensorflow-datasets: pip install '.[examples]'"
        ) from error
    folder = Path(data_dir or tfds.core.constants.DATA_DIR).expanduser()
    manual = folder / "downloads" / "manual"
    builder = tfds.builder(data_set, data_dir=folder)
    if not builder.is_prepared() and not any(manual.glob("*")):
        source = _SOURCES[data_set]
        if not _reachable(source):
            raise InputError(
                f"{data_set} is not prepared in {folder}, and {source} cannot "
                f"be reached; put the archives from there into {manual} or "
                "name the right folder with --data-dir"
            )
    try:
        # If all archives are present, "download" takes them from there.
        builder.download_and_prepare()
        return [
            tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
            for split in splits
        ]
    except Exception as error:  # Of many packages, without a common class.
        raise InputError(
            f"{data_set} in {folder} cannot be prepared or read: "
            f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        ) from error


def _reachable(source: str) -> bool:
    request = urllib.request.Request(source, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True  # An answer, though not a kind one.
    except OSError:
        return False
