"""IAM-OnDB's builder, in the test case of tensorflow-datasets.

It needs dill, which tensorflow-datasets 4.9.10 does not declare.
"""

from pathlib import Path

import tensorflow_datasets as tfds
from common.datasets import iam_ondb


class _Helper:
    """`test_session`, which TensorFlow names like a test, for instances."""

    def __get__(self, instance, owner):
        if instance is not None:
            return super(IamOndbTest, instance).test_session
        return None


class IamOndbTest(tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = iam_ondb.IamOndb
    EXAMPLE_DIR = Path(__file__).parent / "fixtures" / "iam_ondb"
    SPLITS = {"train": 3, "validation": 1, "validation_2": 2, "test": 1}
    # There is nothing to download, and nothing to sum.
    SKIP_CHECKSUMS = True
    test_session = _Helper()
