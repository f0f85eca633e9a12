"""How far low precision moves the logits of exported classifiers.

    KERAS_BACKEND=tensorflow build/peers/formats/bin/python \\
        tests/exports/low_precision.py

Every line has weights, layer, the logits' root mean square (rms) and the rms of
what changes it: OpenVINO as it is, OpenVINO in float32, and onnxruntime with
dynamic int8. Weights: "new"; "gain 2", new ones with the gammas of x W and h R
doubled, or recurrent weights for LSTM; "trained" on ten noisy patterns.
"""

import functools
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

import keras_ln

T, D, U, CLASSES = 60, 16, 64, 10
LNLSTM = functools.partial(keras_ln.LNLSTM, U)
LAYERS = {
    "LSTM": functools.partial(keras.layers.LSTM, U),
    "LNLSTM": LNLSTM,
    "epsilon=1e-3": functools.partial(LNLSTM, epsilon=1e-3),
    "epsilon=1e-2": functools.partial(LNLSTM, epsilon=1e-2),
    "epsilon=1e-1": functools.partial(LNLSTM, epsilon=1e-1),
    'without "state"': functools.partial(
        LNLSTM, normalize=("kernel", "recurrent")
    ),
    'without "recurrent"': functools.partial(
        LNLSTM, normalize=("kernel", "state")
    ),
    "carry_normalized_state": functools.partial(
        LNLSTM, carry_normalized_state=True
    ),
}
RUNS = [("new", name) for name in LAYERS]
RUNS += [("gain 2", "LSTM"), ("gain 2", "LNLSTM")]
RUNS += [("trained", "LSTM"), ("trained", "LNLSTM")]
DOUBLED = ("kernel_gamma", "recurrent_gamma")


def patterns(rng, count):
    """Ten patterns (CLASSES, T, D) in noise, and their numbers."""
    shape = (CLASSES, T, D)
    known = np.random.default_rng(0).normal(size=shape)
    labels = rng.integers(0, CLASSES, count)
    noise = rng.normal(size=(count, T, D))
    return (0.35 * known[labels] + noise).astype("float32"), labels


def model(weights, name):
    """A classifier of sequences of any length."""
    keras.utils.set_random_seed(0)
    made = keras.Sequential(
        [keras.Input((None, D)), LAYERS[name](), keras.layers.Dense(CLASSES)]
    )
    if weights == "gain 2":
        doubled = DOUBLED if name != "LSTM" else ("recurrent_kernel",)
        for variable in made.weights:
            if variable.name in doubled:
                variable.assign(2.0 * variable)
    if weights == "trained":
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile(keras.optimizers.Adam(3e-3), loss)
        x, y = patterns(np.random.default_rng(1), 2000)
        made.fit(x, y, epochs=3, batch_size=64, verbose=0)
    return made


def rms(x):
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(x, dtype="float64"))))


def moved(made, x, folder):
    """rms of the logits, and of what each way to run them changes."""
    # The tests collect this file without them.
    import onnxruntime
    import openvino
    from onnxruntime.quantization import quantize_dynamic

    expected = made.predict(x, verbose=0)
    path, ir = str(Path(folder, "model.onnx")), str(Path(folder, "model.xml"))
    made.export(path, format="onnx", verbose=False)
    source = path
    if not isinstance(made.layers[0], keras.layers.LSTM):
        made.export(ir, format="openvino", verbose=False)
        source = ir
    yield rms(expected)
    for settings in ({}, {"INFERENCE_PRECISION_HINT": "f32"}):
        compiled = openvino.Core().compile_model(source, "CPU", settings)
        yield rms(compiled([x])[compiled.output(0)] - expected)
    quantized = str(Path(folder, "int8.onnx"))
    quantize_dynamic(path, quantized)
    session = onnxruntime.InferenceSession(quantized)
    (given,) = session.get_inputs()
    yield rms(session.run(None, {given.name: x})[0] - expected)


def main(chosen=None):
    """Print a line for each of the weights and layers, separated by tabs."""
    x, _ = patterns(np.random.default_rng(2), 64)
    for weights, name in RUNS:
        if chosen in (None, weights):
            with tempfile.TemporaryDirectory() as folder:
                numbers = moved(model(weights, name), x, folder)
                found = [f"{number:.2g}" for number in numbers]
            print(weights, name, *found, sep="\t", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
