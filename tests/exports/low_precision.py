"""How far low precision moves the logits of exported classifiers.

    KERAS_BACKEND=tensorflow build/peers/formats/bin/python \\
        tests/exports/low_precision.py

Every line has weights, layer, the logits' root mean square (rms) and the rms of
what changes it: OpenVINO as it is, OpenVINO in float32, and onnxruntime with
dynamic int8. With the argument "streams" every line has a file of the denoiser
of examples/streaming.py: its layer, KiB, operations, LSTMs among them, and by
which share of their rms its outputs change. Weights: "new"; "gain 2", new ones
with the gammas of x W and h R doubled, or recurrent weights for LSTM; "trained"
on ten noisy patterns.
"""

import functools
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

import keras_ln

ROOT = Path(__file__).resolve().parents[2]
sys.path += map(str, [ROOT, *map(ROOT.joinpath, ("tests", "examples"))])
sys.path.append(str(ROOT / "tests" / "support"))

import export_models  # noqa: E402

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


def on_litert(path):
    """`call(arrays)` of a file's interpreter, and its operations' names."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path)
    found = [op["op_name"] for op in interpreter._get_ops_details()]
    run = interpreter.get_signature_runner()
    given, made = run.get_input_details(), run.get_output_details()

    def call(arrays, names):
        numbers = {}
        for name, x in zip(names, arrays, strict=True):
            scale, zero = given[name]["quantization"]
            if scale:
                x = np.clip(np.round(x / scale + zero), -128, 127)
            numbers[name] = x.astype(given[name]["dtype"])
        results = []
        outputs = run(**numbers)
        for k in range(len(made)):
            scale, zero = made[f"output_{k}"]["quantization"]
            y = outputs[f"output_{k}"].astype("float32") - zero
            results.append(y * (scale or 1.0))
        return results

    return call, [op for op in found if op != "DELEGATE"]


def on_onnxruntime(path):
    """`call(arrays)`, and the names of the graph's operations."""
    import onnx
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    found = [node.op_type for node in onnx.load(path).graph.node]
    return lambda x, names: session.run(
        None, dict(zip([i.name for i in session.get_inputs()], x, strict=True))
    ), found


def files(made, noisy, folder):
    """Names, files and `steps` of a model's files, streams first."""
    from onnxruntime.quantization import quantize_dynamic

    stream = keras_ln.with_states(made)
    inputs = []
    export_models.in_pieces(
        lambda x: (inputs.append(x), stream(x))[1], stream, noisy
    )
    examples = [np.concatenate(arrays) for arrays in zip(*inputs, strict=True)]
    path = str(Path(folder, "stream.onnx"))
    stream.export(path, format="onnx", verbose=False)
    yield "onnxruntime, float32", path, stream
    quantize_dynamic(path, str(Path(folder, "int8.onnx")))
    yield "onnxruntime, dynamic int8", str(Path(folder, "int8.onnx")), stream
    for quantize, data in ((None, None), ("int8", examples)):
        path = str(Path(folder, f"stream_{quantize}.tflite"))
        keras_ln.litert(stream, path, 1, quantize, data)
        yield f"LiteRT, {quantize or 'float32'}", path, stream
    whole = keras.Sequential([keras.Input(noisy.shape[1:]), *made.layers])
    for quantize in (None, "int8"):
        path = str(Path(folder, f"whole_{quantize}.tflite"))
        keras_ln.litert(whole, path, 1, quantize, noisy)
        yield f"LiteRT, 25 frames, {quantize or 'float32'}", path, whole


def streams():
    """Print a line for each file of the denoisers."""
    import streaming

    for layer_class in (keras.layers.LSTM, keras_ln.LNLSTM):
        keras.utils.set_random_seed(0)
        made = streaming.build_model(layer_class)
        made.fit(*streaming.make_sounds(2000, 25, 0), 16, epochs=6, verbose=0)
        noisy, _ = streaming.make_sounds(40, 25, 1)
        expected = made.predict(noisy, verbose=0)
        with tempfile.TemporaryDirectory() as folder:
            for name, path, model in files(made, noisy[:20], folder):
                on = on_onnxruntime if path.endswith("onnx") else on_litert
                call, found = on(path)
                names = [x.name for x in model.inputs]
                results = []
                for x in noisy[20:, None]:
                    if len(names) == 1:
                        call, _ = on(path)  # Its states begin with zeros.
                        results.append(call([x], names)[0])
                        continue
                    run = functools.partial(call, names=names)
                    pieces = export_models.in_pieces(run, model, x)
                    results.append(np.concatenate(pieces, axis=1))
                change = np.concatenate(results) - expected[20:]
                lstms = sum("LSTM" in op for op in found)
                share = f"{rms(change) / rms(expected[20:]):.2g}"
                numbers = len(found), lstms, share
                size = f"{Path(path).stat().st_size / 1024:.0f}"
                print(name, layer_class.__name__, size, *numbers, sep="\t")


def main(chosen=None):
    """Print a line for each of the weights and layers, separated by tabs."""
    if chosen == "streams":
        return streams()
    x, _ = patterns(np.random.default_rng(2), 64)
    for weights, name in RUNS:
        if chosen in (None, weights):
            with tempfile.TemporaryDirectory() as folder:
                numbers = moved(model(weights, name), x, folder)
                found = [f"{number:.2g}" for number in numbers]
            print(weights, name, *found, sep="\t", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
