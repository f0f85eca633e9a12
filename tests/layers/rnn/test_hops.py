"""How far it is from a layer's call to the first step of its cell."""

import itertools
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_ln

PACKAGE = Path(keras_ln.__file__).parent
MOST_FUNCTIONS, MOST_CHANGES = 45, 30


def entered(call, until="lstm_step"):
    """(file, function) of ours in the order in which they are entered.

    Lambdas and comprehensions do not count.
    """
    found = []

    def note(frame, event, _):
        code = frame.f_code
        path = Path(code.co_filename)
        if event != "call" or code.co_name.startswith("<"):
            return
        if PACKAGE in path.parents and until not in dict(found).values():
            file = path.relative_to(PACKAGE).as_posix()
            found.append((file, code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    assert found[-1][1] == until
    return found[:-1]


if keras.backend.backend() == "torch":  # Which runs what is written.

    @pytest.mark.usefixtures("without_kernels")
    def test_from_a_call_to_the_first_step():
        """The first call of a layer that is built, and the second."""
        layer = keras_ln.LNLSTM(5)
        layer.build((3, 4, 7))
        x = keras.ops.convert_to_tensor(np.ones((3, 4, 7), "float32"))
        for number in ("first", "second"):
            path = entered(lambda: layer(x))
            files = [
                file for file, _ in itertools.groupby(path, lambda p: p[0])
            ]
            shown = [" ".join(place) for place, _ in itertools.groupby(path)]
            print(f"\n{number} call:", *shown, sep="\n")
            print(f"{len(set(path))} functions, {len(files) - 1} changes")
            assert len(set(path)) <= MOST_FUNCTIONS
            assert len(files) - 1 <= MOST_CHANGES
            back = {file for file in files if files.count(file) > 1}
            assert {
                file
                for file in back
                if file != "layers/rnn/base_rnn.py"
                and not file.startswith("backend/")
            } == set()
