"""LiteRT's fused LSTM, and its converter.

Letters: B batch, T time, D input features, U units.
"""

import uuid
import warnings

import numpy as np
import tensorflow as tf

from keras_ln.backend.tensorflow.loops import scan


def lstm(x, kernel, recurrent_kernel, bias):
    """Last output (B, U) and outputs (B, T, U) of an LSTM from zeros.

    The converter knows it by the attributes, six arguments and five results,
    and puts one op in its place, if B and T are known and it finds it in a
    SavedModel. No caller may use the other results.
    """

    @tf.function(
        autograph=False,
        experimental_attributes={
            "api_implements": f"lstm_{uuid.uuid4().hex}",
            "time_major": False,
        },
    )
    def keras_lstm(x, h, c, kernel, recurrent_kernel, bias):
        def step(states, row):
            z = row["x"] + tf.matmul(states["h"], recurrent_kernel)
            i, f, new, o = tf.split(z, 4, axis=1)
            c = tf.sigmoid(f) * states["c"] + tf.sigmoid(i) * tf.tanh(new)
            h = tf.sigmoid(o) * tf.tanh(c)
            return {"h": h, "c": c}, {"h": h}

        rows = tf.transpose(tf.matmul(x, kernel) + bias, (1, 0, 2))
        states, outputs = scan(step, {"h": h, "c": c}, {"x": rows})
        outputs = tf.transpose(outputs["h"], (1, 0, 2))
        return states["h"], outputs, states["h"], states["c"], tf.constant(1.0)

    zeros = tf.zeros((x.shape[0], recurrent_kernel.shape[0]), x.dtype)
    weights = map(tf.convert_to_tensor, (kernel, recurrent_kernel, bias))
    arguments = (x, zeros, zeros, *weights)
    # Otherwise TensorFlow warns of one trace for each layer.
    traced = keras_lstm.get_concrete_function(*arguments)
    last, outputs, *_ = traced(*arguments)
    return last, outputs


def are_zeros(x):
    """Whether it is known that a tensor of a graph holds zeros alone."""
    value = tf.get_static_value(x)
    return value is not None and not value.any()


def run(data, samples):
    """First outputs of a LiteRT file for dictionaries of float arrays."""
    with warnings.catch_warnings():
        # It will leave TensorFlow for another package, ai-edge-litert.
        warnings.simplefilter("ignore")
        interpreter = tf.lite.Interpreter(model_content=data)
    interpreter.allocate_tensors()
    call = interpreter.get_signature_runner()
    given, made = call.get_input_details(), call.get_output_details()
    found = []
    for sample in samples:
        interpreter.reset_all_variables()
        arrays = {}
        for name, array in sample.items():
            scale, zero = given[name]["quantization"]
            if scale:
                array = np.clip(np.round(array / scale + zero), -128, 127)
            arrays[name] = array.astype(given[name]["dtype"])
        y = call(**arrays)["output_0"]
        scale, zero = made["output_0"]["quantization"]
        found.append((scale or 1.0) * (y.astype("float32") - zero))
    return np.concatenate(found)


class _Signature(str):
    """A signature's name that no other of its kind equals.

    The converter prepares its interpreter for each signature that it meets,
    which sets states to zero. Otherwise it would run all samples as one
    sequence, and find other ranges than those of sequences.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        """Whether it is the same one, or a string of these letters."""
        return self is other or (type(other) is str and str(self) == other)


def convert(folder, samples=(), new_quantizer=None):
    """The bytes of the LiteRT file of a SavedModel.

    With samples, dictionaries of arrays, it computes in int8 by their ranges,
    written by the converter's new quantizer or its old one.
    """
    converter = tf.lite.TFLiteConverter.from_saved_model(folder)
    if samples:
        converter.experimental_new_quantizer = new_quantizer
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: (
            (_Signature("serving_default"), sample) for sample in samples
        )
        converter.target_spec.supported_ops = [
            tf.lite.OpsSet.TFLITE_BUILTINS_INT8
        ]
        converter.inference_input_type = tf.int8
        converter.inference_output_type = tf.int8
    return converter.convert()
