"""What tests of refused arguments have in common."""

import numpy as np
import pytest


def refused(*words, error=ValueError):
    """`pytest.raises` for a message that holds all these words."""
    pattern = "".join(f"(?=.*(?:{word}))" for word in words)
    return pytest.raises(error, match=f"(?s){pattern}")


def x(*shape, dtype="float32"):
    return np.ones(shape, dtype)
