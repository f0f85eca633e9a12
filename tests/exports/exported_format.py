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

from keras_ln import ops

HERE = Path(__file__).resolve().parent
MODELS = ("small", "LNGRU")


def onnx(path, inputs):
    """By onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    (given,) = session.get_inputs()
    return [session.run(None, {given.name: x})[0] for x in inputs]


def openvino(path, inputs):
    """On a CPU, in float32."""
    import openvino

    compiled = openvino.Core().compile_model(
        path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    return [compiled([x])[compiled.output(0)] for x in inputs]


def saved_model(path, inputs):
    """By TensorFlow, which compiles what there is for XLA."""
    import tensorflow as tf

    loaded = tf.saved_model.load(path)
    return [loaded.serve(x).numpy() for x in inputs]


def torch(path, inputs):
    """By torch."""
    import torch

    program = torch.export.load(path).module()
    return [program(torch.tensor(x)).detach().numpy() for x in inputs]


def tensorflowjs(path, inputs):
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
    given = [{"shape": x.shape, "values": x.ravel().tolist()} for x in inputs]
    ended = subprocess.run(
        ["node", HERE / "run_tensorflowjs.js", converted],
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment | {"NODE_PATH": str(folder / "node_modules")},
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    return [np.reshape(y["values"], y["shape"]) for y in found]


# By the word for a format: Keras' name, how a file's name ends, what runs it.
FORMATS = {
    "onnx": ("onnx", ".onnx", onnx),
    "openvino": ("openvino", ".xml", openvino),
    "saved_model": ("tf_saved_model", "", saved_model),
    "torch": ("torch", ".pt2", torch),
    "tensorflowjs": ("tf_saved_model", "", tensorflowjs),
    "tensorflowjs_for_xla": ("tf_saved_model", "", tensorflowjs),
}


def main(name, steps, folder):
    """Compare two batches of every model; two lengths, where it is unknown."""
    format, suffix, run = FORMATS[name]
    portable = name == "tensorflowjs"
    for model_name in MODELS:
        model = export_models.model(model_name)
        inputs = export_models.samples(model)
        settings = {}
        if steps != "None":
            inputs = [x[:, : int(steps)] for x in inputs]
            shape = (None, *inputs[0].shape[1:])
            signature = keras.InputSpec(shape=shape, dtype="float32")
            settings["input_signature"] = [signature]
        if format == "torch":  # It is for one batch.
            inputs = [x[:1] for x in inputs]
        expected = export_models.outputs(model, inputs)
        path = str(Path(folder, model_name)) + suffix
        with ops.portable() if portable else contextlib.nullcontext():
            model.export(path, format=format, verbose=False, **settings)
        found = run(path, inputs)
        for y, result in zip(found, expected, strict=True):
            close(y, result, **export_models.ROUNDING)
    print("the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
