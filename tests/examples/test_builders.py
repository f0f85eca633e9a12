"""Builders of data sets, in the test case of tensorflow-datasets.

It needs dill, which tensorflow-datasets 4.9.10 does not declare.
"""

from pathlib import Path

import tensorflow_datasets as tfds
from common.datasets import iam_ondb, question_files

FIXTURES = Path(__file__).parent / "fixtures"


class _Helper:
    """`test_session`, which TensorFlow names like a test, for instances."""

    def __get__(self, instance, owner):
        if instance is not None:
            return super(owner, instance).test_session
        return None


class ClozeQuestionsTest(tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = question_files.ClozeQuestions
    EXAMPLE_DIR = FIXTURES / "cloze"
    SPLITS = {"train": 3, "validation": 1, "test": 1}
    # There is nothing to download, and nothing to sum.
    SKIP_CHECKSUMS = True
    test_session = _Helper()


class IamOndbTest(tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = iam_ondb.IamOndb
    EXAMPLE_DIR = FIXTURES / "iam_ondb"
    SPLITS = {"train": 3, "validation": 1, "validation_2": 2, "test": 1}
    SKIP_CHECKSUMS = True
    test_session = _Helper()
