"""How far it is from a layer's call to the first step of its cell."""

import ast
import inspect
import itertools
import sys
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_ln

# The door, and what each storey asks.
MAY_COME_BACK = ("layers/rnn/base_", "backend/", "engine/dispatch.py")
MAY_COME_BACK += (
    "engine/dtypes.py",
    "engine/implementations.py",
    "engine/scan.py",
)
PACKAGE = Path(keras_ln.__file__).parent
MOST_CALLS, MOST_FUNCTIONS, MOST_CHANGES, MOST_LINES = 70, 51, 40, 60


def entered(call, until="lstm_step"):
    """(file, code object) of ours in the order in which they are entered.

    Lambdas and comprehensions do not count.
    """
    found = []

    def note(frame, event, _):
        code = frame.f_code
        path = Path(code.co_filename)
        if event != "call" or code.co_name.startswith("<"):
            return
        if PACKAGE in path.parents and not (
            found and found[-1][1].co_name == until
        ):
            found.append((path.relative_to(PACKAGE).as_posix(), code))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    assert found[-1][1].co_name == until
    return found[:-1]


def lines(code):
    """How many lines a function has below its docstring."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(code))).body
    body = function.body[1 if ast.get_docstring(function) else 0 :]
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


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
            print(f"\n{number} call:")
            for (file, code), _ in itertools.groupby(path):
                print(file, code.co_name)
            print(f"{len(set(path))} functions, {len(files) - 1} changes")
            assert len(path) <= MOST_CALLS
            assert len(set(path)) <= MOST_FUNCTIONS
            assert len(files) - 1 <= MOST_CHANGES
            long = {
                code.co_name for _, code in path if lines(code) > MOST_LINES
            }
            assert not long
            back = {file for file in files if files.count(file) > 1}
            assert all(file.startswith(MAY_COME_BACK) for file in back), back
