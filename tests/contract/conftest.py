"""What the tests of the primitives have in common."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(7)
