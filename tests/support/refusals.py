"""What tests of refused arguments have in common."""

import numpy as np
import pytest

# What `keras.ops` takes for no tensor, or for one whose numbers would be cut.
NO_NUMBERS = (
    *("text", ["text"], [None], [[1.0], [1.0, 2.0]], {"a": 1.0}, object()),
    *(np.array(["text"]), np.array([None]), np.ones(3, "complex64"), 1j),
)


def refused(*words, error=ValueError):
    """`pytest.raises` for a message that holds all these words."""
    pattern = "".join(f"(?=.*(?:{word}))" for word in words)
    return pytest.raises(error, match=f"(?s){pattern}")


def check_refused(words, calls, *arguments, error=ValueError):
    """Fail unless these words are said of a call, or of each in a list."""
    words = [words] if isinstance(words, str) else words
    for call in calls if isinstance(calls, list) else [calls]:
        with refused(*words, error=error):
            call(*arguments)


def x(*shape, dtype="float32"):
    return np.ones(shape, dtype)
