"""Layers where Keras only infers: KERAS_BACKEND=numpy pytest, with this file.

So on openvino. `test_inference.py` starts it.
"""

import keras
import numpy as np
import pytest
from arrays import close, example, to_numpy
from conformance.test_against_oracle import CASES, problem_of
from descriptors import LAYERS, SEQUENCE_LAYERS, T, U, randomize
from tolerances import BFLOAT16, FLOAT32_VALUES, SAME_PROGRAM

import keras_ln
from keras_ln import backend
from keras_ln.__main__ import report

BACKEND = keras.backend.backend()
INFERRED = [case for case in CASES if not case.get("training")]
# OpenVINO compiles half a second for each, and `predict` in it takes bfloat16
# where the CPU has it.
CHOSEN, PREDICTED = {
    "numpy": (INFERRED, SAME_PROGRAM),
    "openvino": (INFERRED[::4], BFLOAT16),
}.get(BACKEND, ((), None))


def tensors(arrays):
    """Tensors in float32, or None."""
    if arrays is None:
        return None
    return [keras.ops.convert_to_tensor(x, "float32") for x in arrays]


@pytest.mark.parametrize("case", CHOSEN, ids=range(len(CHOSEN)))
def test_values(case):
    problem, known = problem_of(case)
    problem.training, problem.drops, problem.choices = False, False, None
    layer = problem.layer(dtype="float32")
    options = {
        "mask": problem.mask,
        "reset": problem.reset,
        "initial_state": tensors(problem.states),
        "reset_state": tensors(problem.resets),
    }
    options = {k: v for k, v in options.items() if v is not None}
    (x,) = tensors([problem.x])
    outputs = keras.tree.flatten(layer(x, **options))
    wanted, _ = problem.oracle(problem.arrays(layer), **known)
    close(outputs, wanted, **FLOAT32_VALUES)


@pytest.mark.parametrize("row", LAYERS, ids=str)
def test_models(row, tmp_path):
    """By `predict` too, of any length, saved and loaded."""
    shape = list(row.input_shape[1:])
    if row.is_recurrent:
        shape[0] = None
    model = keras.Sequential([keras.Input(shape), row.make()])
    randomize(model)
    x = example(*row.input_shape)
    y = model.predict(x, verbose=0)
    close(y, model(x), **PREDICTED)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    close(again.predict(x, verbose=0), y, **SAME_PROGRAM)
    if row.is_recurrent:
        start = x[:, : T - 1]
        close(model.predict(start, verbose=0), model(start), **PREDICTED)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_training_mode_runs(row):
    layer = row.make(dropout=0.4, recurrent_dropout=0.4, zoneout=0.4)
    x = example(*row.input_shape)
    y = to_numpy(layer(x, training=True))
    assert y.shape == (len(x), U) and np.isfinite(y).all()
    assert abs(y - to_numpy(layer(x, training=True))).max() > 1e-3


def test_gradients_are_refused():
    sentence = f"On {BACKEND} Keras infers with its own operations, and has no"
    x = example(2, 4, 3)
    with pytest.raises(ValueError, match=f"use_fused=True, but .*{sentence}"):
        keras_ln.LNLSTM(3, use_fused=True)(x)
    with pytest.raises(NotImplementedError, match=sentence):
        backend.jacobian(keras.ops.tanh, x)
    model = keras.Sequential([keras_ln.LNLSTM(3)])
    model.compile("sgd", "mse")
    with pytest.raises(NotImplementedError, match="fit"):  # By Keras.
        model.fit(x, np.zeros((2, 3)), verbose=0)


def test_report():
    lines = list(report())
    assert f"CPU extension  none. On {BACKEND} Keras infers" in "\n".join(lines)
    assert lines[-1].split() == ["WNLSTM", "loop"]


if BACKEND == "openvino":

    def test_what_openvino_does_not_run(tmp_path):
        """An unknown number of steps, for which Keras exports one."""

        class Outer(keras.layers.Layer):
            def call(self, x):
                return keras_ln.LNLSTM(3)(x)

        sentence = "The number of steps must be known on openvino"
        with pytest.raises(ValueError, match=sentence):
            keras.Sequential([keras.Input((None, 3)), Outer()])
        path = str(tmp_path / "model.xml")
        model = keras.Sequential([keras.Input((None, 3)), keras_ln.LNLSTM(3)])
        with pytest.raises(ValueError, match=sentence):
            model.export(path, format="openvino", verbose=False)
        with (
            keras_ln.ops.portable(unroll=True),
            pytest.raises(ValueError, match="needs a known number of time"),
        ):
            model.export(path, format="openvino", verbose=False)

    def test_export(tmp_path):
        import openvino

        model = keras.Sequential([keras.Input((T, 3)), keras_ln.LNLSTM(3)])
        path = str(tmp_path / "model.xml")
        model.export(path, format="openvino", verbose=False)
        run = openvino.compile_model(openvino.Core().read_model(path), "CPU")
        x = example(5, T, 3)
        (y,) = run(x).values()
        close(y, model.predict(x, verbose=0), **SAME_PROGRAM)
