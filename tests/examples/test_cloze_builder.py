"""The builder of cloze questions, in the test case of tensorflow-datasets.

It needs dill, which tensorflow-datasets 4.9.10 does not declare.
"""

from pathlib import Path

import tensorflow_datasets as tfds
from common.datasets import question_files


class _Helper:
    """`test_session`, which TensorFlow names like a test, for instances."""

    def __get__(self, instance, owner):
        if instance is not None:
            return super(ClozeQuestionsTest, instance).test_session
        return None


class ClozeQuestionsTest(tfds.testing.DatasetBuilderTestCase):
    DATASET_CLASS = question_files.ClozeQuestions
    EXAMPLE_DIR = Path(__file__).parent / "fixtures" / "cloze"
    SPLITS = {"train": 3, "validation": 1, "test": 1}
    # There is nothing to download, and nothing to sum.
    SKIP_CHECKSUMS = True
    test_session = _Helper()
