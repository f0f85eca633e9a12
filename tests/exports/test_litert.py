"""LSTMs of a model become LiteRT's own; what cannot says why."""

import re

import keras
import numpy as np
import pytest
from arrays import close, example
from backend_gradients import BACKEND
from descriptors import randomize
from tolerances import SAME_PROGRAM

import keras_ln

if BACKEND != "tensorflow":
    pytest.skip("LiteRT is TensorFlow's.", allow_module_level=True)

import tensorflow as tf

pytestmark = [
    pytest.mark.every_backend,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def lstm(units):
    return keras.layers.LSTM(units, return_sequences=True)


# Layers of a model, the number of LiteRT's LSTMs, and why not more.
LSTMS = {
    "stack": (lambda: [lstm(5), lstm(4), keras.layers.Dense(2)], 2, ""),
    "ours": (lambda: [keras_ln.LNLSTM(5, normalize=())], 1, ""),
    "both": (lambda: [keras.layers.Bidirectional(lstm(5))], 2, ""),
    "normalised": (
        lambda: [lstm(5), keras_ln.LNLSTM(4)],
        *(1, "normalize=.*twin in Keras"),
    ),
    "gru": (lambda: [keras.layers.GRU(4)], 0, "LSTM layers alone"),
    "masked": (
        lambda: [keras.layers.Masking(), lstm(4)],
        *(0, "It has a mask"),
    ),
}
FUSED = "UNIDIRECTIONAL_SEQUENCE_LSTM"


@pytest.mark.full
@pytest.mark.parametrize("quantize", [None, "int8"])
@pytest.mark.parametrize("name", LSTMS)
def test_an_lstm_is_one_op_of_litert(name, quantize, tmp_path):
    keras.utils.set_random_seed(0)
    make, count, words = LSTMS[name]
    model = keras.Sequential([keras.Input((8, 3)), *make()])
    randomize(model)
    x = example(60, 8, 3)
    path = str(tmp_path / "model.tflite")
    rows = keras_ln.litert(model, path, 1, quantize, x)
    interpreter = tf.lite.Interpreter(path)
    interpreter.allocate_tensors()
    found = [op["op_name"] for op in interpreter._get_ops_details()]
    assert [row.op for row in rows].count(FUSED) == count
    assert found.count(FUSED) == count and "WHILE" not in found
    assert re.search(words, "".join(row.reason for row in rows))
    (given,) = interpreter.get_input_details()
    (made,) = interpreter.get_output_details()
    outputs, expected = [], model(x[:20]).numpy()
    for row in x[:20, None]:
        interpreter.reset_all_variables()
        if quantize:
            scale, zero = given["quantization"]
            row = np.clip(np.round(row / scale + zero), -128, 127)
        interpreter.set_tensor(given["index"], row.astype(given["dtype"]))
        interpreter.invoke()
        y = interpreter.get_tensor(made["index"])[0].astype("float32")
        scale, zero = made["quantization"] if quantize else (1.0, 0.0)
        outputs.append(scale * (y - zero))
    moved = np.sqrt(np.mean(np.square(outputs - expected)))
    # What low precision does to norms is on the page.
    bound = 0.3 if name == "normalised" else 0.05
    size = np.sqrt(np.mean(np.square(expected)))
    assert moved < (bound * size if quantize else 1e-6)


def test_what_the_converter_replaces_is_the_same(tmp_path):
    both = keras.layers.Bidirectional(lstm(5))
    model = keras.Sequential([keras.Input((8, 3)), both, lstm(4)])
    randomize(model)
    fast = keras_ln.with_fast_rnn(model)
    spec = keras.InputSpec(shape=(2, 8, 3), dtype="float32")
    with keras_ln.ops.portable(fused_lstm=True):
        fast.export(tmp_path, input_signature=[spec], verbose=False)
    x = example(2, 8, 3)
    loaded = tf.saved_model.load(tmp_path)
    close(loaded.serve(x), model(x), **SAME_PROGRAM)


@pytest.mark.full
def test_litert_says_what_it_cannot_do(tmp_path):
    model = keras.Sequential([keras.Input((20, 3)), lstm(5)])
    path, x = str(tmp_path / "model.tflite"), np.ones((2, 20, 3), "float32")
    for given, words in [
        ((0,), "`batch_size` must be a positive integer"),
        ((1, "int4"), "`quantize` must be None or 'int8'"),
        ((1, "int8"), "needs examples of the input"),
        ((3, None, x), "at least batch_size=3 rows"),
    ]:
        with pytest.raises(ValueError, match=words):
            keras_ln.litert(model, path, *given)
    unknown = keras.Sequential([keras.Input((None, 3)), lstm(5)])
    with pytest.raises(ValueError, match="a known number of steps"):
        keras_ln.litert(unknown, path)
    model.layers[0].cell.bias.assign(9.0 * np.ones(20))
    with pytest.warns(UserWarning, match="clips c at 10.*'lstm.*.20"):
        keras_ln.litert(model, path, representative=x)
    model.layers[0].cell.bias.assign(np.zeros(20))
    (row,) = keras_ln.litert(model, path, 1, "int8", 0.1 * x)
    assert row.op == "unrolled" and "int8 op is wrong" in row.reason
    model = keras.Sequential([keras.Input((20, 3)), keras_ln.LNLSTM(5)])
    model.layers[0].cell.recurrent_gamma.assign(5.0 * np.ones(20))
    x = example(9, 20, 3)
    with pytest.warns(UserWarning, match="int8 moves the outputs by"):
        keras_ln.litert(model, path, 1, "int8", x)
