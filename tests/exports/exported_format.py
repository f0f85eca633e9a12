"""Exports models in a format, runs them with its runtime, and compares.

The arguments are the format, the number of steps or "None", and a folder. The
backend is Keras' own setting. tests/exports/test_formats.py starts it.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import export_models
import keras
import numpy as np
from arrays import close

from keras_ln import ops, with_states

HERE = Path(__file__).resolve().parent
MODELS = ("small", "LNGRU")


def onnx(path, names):
    """By onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    given = [x.name for x in session.get_inputs()]
    return lambda x: session.run(None, dict(zip(given, x, strict=True)))


def openvino(path, names):
    """On a CPU, in float32."""
    import openvino

    compiled = openvino.Core().compile_model(
        path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    # What TensorFlow wrote may have more outputs behind the model's.
    return lambda x: [compiled(x)[y] for y in compiled.outputs[: len(names)]]


def litert(path, names):
    """By LiteRT without TensorFlow; the file has no loop."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path)
    operations = {op["op_name"] for op in interpreter._get_ops_details()}
    wrong = [op for op in operations if op == "WHILE" or "Flex" in op]
    if wrong:
        raise AssertionError(wrong)
    run = interpreter.get_signature_runner()

    def call(x):
        made = run(**dict(zip(names, x, strict=True)))
        return [made[f"output_{k}"] for k in range(len(made))]

    return call


def saved_model(path, names):
    """By TensorFlow, which compiles what there is for XLA."""
    import tensorflow as tf

    loaded = tf.saved_model.load(path)
    return lambda x: tf.nest.flatten(loaded.serve(x if len(x) > 1 else x[0]))


def torch(path, names):
    """By torch."""
    import torch

    program = torch.export.load(path).module()

    def call(x):
        x = list(map(torch.tensor, x))
        made = program(x) if len(x) > 1 else [program(x[0])]
        return [y.detach().numpy() for y in made]

    return call


def tensorflowjs(path, names):
    """By tensorflow.js in Node, after its converter of SavedModels."""
    folder = Path(os.environ["KERAS_LN_PEERS"], "tensorflowjs")
    converted = f"{path}_js"
    environment = {k: v for k, v in os.environ.items() if "PYTHON" not in k}
    subprocess.run(
        [
            folder / "bin" / "tensorflowjs_converter",
            "--input_format=tf_saved_model",
            *(path, converted),
        ],
        check=True,
        env=environment,
    )

    def call(arrays):
        given = {
            name: {"shape": x.shape, "values": x.ravel().tolist()}
            for name, x in zip(names, arrays, strict=True)
        }
        ended = subprocess.run(
            ["node", HERE / "run_tensorflowjs.js", converted],
            input=json.dumps(given),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=environment | {"NODE_PATH": str(folder / "node_modules")},
        )
        found = json.loads(ended.stdout.splitlines()[-1])
        return [
            np.reshape(np.array(y["values"], "float32"), y["shape"])
            for y in found
        ]

    return call


# By the word for a format: Keras' name, how a file's name ends, what runs it.
FORMATS = {
    "onnx": ("onnx", ".onnx", onnx),
    "litert": ("litert", ".tflite", litert),
    "openvino": ("openvino", ".xml", openvino),
    "saved_model": ("tf_saved_model", "", saved_model),
    "torch": ("torch", ".pt2", torch),
    "tensorflowjs": ("tf_saved_model", "", tensorflowjs),
    "tensorflowjs_for_xla": ("tf_saved_model", "", tensorflowjs),
}


def exported(model, name, folder, **settings):
    """`call(arrays)` of the model's file."""
    format, suffix, run = FORMATS[name]
    path = str(Path(folder, model.name)) + suffix
    portable = name == "tensorflowjs"
    with ops.portable() if portable else contextlib.nullcontext():
        model.export(path, format=format, verbose=False, **settings)
    return run(path, [x.name for x in model.inputs])


def main(name, steps, folder):
    """Compare two batches of every model; two lengths, where it is unknown."""
    if steps == "stream":
        check_stream(name, folder)
    for model_name in MODELS if steps != "stream" else ():
        model = export_models.model(model_name)
        inputs = export_models.samples(model)
        settings = {}
        if steps != "None":
            inputs = [x[:, : int(steps)] for x in inputs]
            shape = (None, *inputs[0].shape[1:])
            signature = keras.InputSpec(shape=shape, dtype="float32")
            settings["input_signature"] = [signature]
        if name == "torch":  # It is for one batch.
            inputs = [x[:1] for x in inputs]
        expected = export_models.outputs(model, inputs)
        call = exported(model, name, folder, **settings)
        for x, result in zip(inputs, expected, strict=True):
            close(call([x])[0], result, **export_models.ROUNDING)
    print("the same")


def check_stream(name, folder):
    """Eight single steps are the whole."""
    model = export_models.streaming()
    export_models.randomize(model)
    stream = with_states(model)
    x = np.random.default_rng(1).normal(size=(1, 8, export_models.D))
    x = x.astype("float32")
    signature = [
        keras.InputSpec(shape=given.shape, dtype="float32", name=given.name)
        for given in stream.inputs
    ]
    call = exported(stream, name, folder, input_signature=[signature])
    found = export_models.in_pieces(call, stream, x)
    found = np.concatenate(found, axis=1)
    close(found, export_models.outputs(model, [x])[0], rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    main(*sys.argv[1:])
