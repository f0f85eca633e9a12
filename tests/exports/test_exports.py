"""Exported models give the same numbers where there is no keras_ln."""

import re
import subprocess
import sys

import export_models
import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND
from descriptors import BY_NAME, SEQUENCE_LAYERS
from export_models import ROUNDING
from recurrence import MASKS, Problem
from tolerances import SAME_PROGRAM

import keras_ln
from keras_ln import ops

pytestmark = pytest.mark.every_backend

# The process that runs exported models has no keras_ln to import.
SERVE = """
import sys
sys.modules["keras_ln"] = None
import numpy as np

def of_rank(x, rank):
    # No model has two inputs of one rank.
    arrays = x if isinstance(x, list) else [x]
    (array,) = (array for array in arrays if array.ndim == rank)
    return array

def saved_model(path):
    import tensorflow as tf
    loaded = tf.saved_model.load(path)
    return lambda x: loaded.serve(x)

def tflite(path):
    import tensorflow as tf
    interpreter = tf.lite.Interpreter(path)
    (found,) = interpreter.get_output_details()

    def run(x):
        arrays = {
            given["index"]: of_rank(x, len(given["shape"]))
            for given in interpreter.get_input_details()
        }
        for index, array in arrays.items():
            interpreter.resize_tensor_input(index, array.shape)
        interpreter.allocate_tensors()
        for index, array in arrays.items():
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return interpreter.get_tensor(found["index"])

    return run

def onnx(path):
    import onnxruntime
    session = onnxruntime.InferenceSession(path)
    ranks = {given.name: len(given.shape) for given in session.get_inputs()}
    return lambda x: session.run(
        None, {name: of_rank(x, rank) for name, rank in ranks.items()}
    )[0]

def jax_export(path):
    import jax
    with open(path, "rb") as file:
        return jax.export.deserialize(bytearray(file.read())).call

def pt2(path):
    import torch
    program = torch.export.load(path).module()
    tensors = torch.utils.data.default_convert
    return lambda x: program(tensors(x)).detach()

inputs, outputs = {}, {}
for key, array in np.load("inputs.npz").items():
    path, batch, _ = key.split("/")
    inputs.setdefault((path, batch), []).append(array)
for (path, batch), x in inputs.items():
    load = globals()[path.split(".")[1].removesuffix("_of_length")]
    found = load(path)(x if len(x) > 1 else x[0])
    outputs[f"{path}/{batch}"] = np.array(found)
np.savez("outputs.npz", **outputs)
"""


@pytest.mark.parametrize(
    "name, unroll",
    [*((row.name, False) for row in SEQUENCE_LAYERS)]
    + [("LNLSTM", True), ("BNLSTM", True)],
)
def test_portable_layers_are_the_same(name, unroll):
    """Values and gradients."""
    row = BY_NAME[name]
    problem = Problem(
        row, {"return_sequences": True}, mask=MASKS["middle"], given_states=True
    )
    layer = problem.layer()
    with ops.portable(unroll=unroll):
        assert "portable" in ops.unsupported_reason(layer)
        problem.check(layer)
    assert ops.unsupported_reason(layer) is None


def test_portable_ops_are_the_same():
    problem = Problem(BY_NAME["LNLSTM"], {"return_sequences": True})
    weights = {
        v.name: keras.ops.convert_to_tensor(v) for v in problem.layer().weights
    }
    gamma = weights["state_gamma"]
    for run in (
        lambda: ops.ln_lstm(problem.x, None, weights)[1],
        lambda: ops.layer_normalization(problem.x, gamma[:2], gamma[1:]),
    ):
        expected = keras.ops.convert_to_numpy(run())
        with ops.portable():
            found = keras.ops.convert_to_numpy(run())
        close(found, expected, rtol=1e-12, atol=1e-12)


def test_portable_ends_with_an_error_too():
    layer = keras_ln.LNLSTM(3)
    with pytest.raises(KeyError), ops.portable():
        raise KeyError
    assert ops.unsupported_reason(layer) is None


def any_batch(x):
    """The signature of a model for inputs of one length."""
    return [
        keras.tree.map_structure(
            lambda a: keras.InputSpec(
                shape=(None, *a.shape[1:]), dtype=a.dtype.name
            ),
            x,
        )
    ]


def saved_model(model, path, x):
    """Any batch and any length."""
    model.export(path, verbose=False)


def onnx(model, path, x):
    """Any batch and any length."""
    model.export(path, format="onnx", verbose=False)


def onnx_of_length(model, path, x):
    """Any batch; what XLA would compile, where it is asked for."""
    model.export(
        path, format="onnx", verbose=False, input_signature=any_batch(x)
    )


def tflite(model, path, x):
    """Any batch; LiteRT has to know the number of steps."""
    with ops.portable(unroll=True):
        model.export(
            path, format="litert", verbose=False, input_signature=any_batch(x)
        )


def jax_export(model, path, x):
    """Any batch and any length."""
    import jax

    shapes = keras.tree.map_structure(
        lambda given: ", ".join("bt"[: given.shape.count(None)]) + ", ...",
        model.input,
    )
    specs = jax.export.symbolic_args_specs(x, shapes)
    program = jax.export.export(jax.jit(lambda x: model(x, training=False)))
    exported = program(specs)
    path.write_bytes(exported.serialize())


def pt2(model, path, x):
    """One batch and one length: torch writes the loop out."""
    import torch

    program = torch.export.export(
        model.eval(), (keras.tree.map_structure(torch.tensor, x),)
    )
    torch.export.save(program, path)


# The ONNX runtime and the converter are not among the tests' packages.
EXPORTERS = {
    "tensorflow": [
        saved_model,
        tflite,
        pytest.param(onnx, marks=pytest.mark.peers),
        pytest.param(onnx_of_length, marks=pytest.mark.peers),
    ],
    "jax": [jax_export],
    "torch": [pt2],
}
# These write a file for each length.
OF_LENGTH = (tflite, pt2, onnx_of_length)


@pytest.mark.promise("[exported models]")
@pytest.mark.full
@pytest.mark.parametrize("export", EXPORTERS[BACKEND])
def test_served_without_keras_ln(export, tmp_path):
    """Every layer, both directions, every step, any mask, two lengths."""
    given, expected = {}, {}
    for name in export_models.NAMES:
        # LiteRT cannot run the loop of Keras.
        if (name, export) == ("stacked_cells", tflite):
            continue
        model = export_models.model(name)
        inputs = export_models.samples(model)
        if export in OF_LENGTH and name != "everything":
            # One file is enough where the length makes no other difference;
            # in "everything" the second batch is longer than `max_steps`.
            inputs = inputs[:1]
        results = export_models.outputs(model, inputs)
        for k, (x, y) in enumerate(zip(inputs, results, strict=True)):
            number = k if export in OF_LENGTH else ""
            path = f"{name}{number}.{export.__name__}"
            if not (tmp_path / path).exists():
                export(model, tmp_path / path, x)
            expected[f"{path}/{k}"] = y
            for n, array in enumerate(keras.tree.flatten(x)):
                given[f"{path}/{k}/{n}"] = array
    np.savez(tmp_path / "inputs.npz", **given)
    subprocess.run([sys.executable, "-c", SERVE], cwd=tmp_path, check=True)
    with np.load(tmp_path / "outputs.npz") as found:
        close(found, expected, **ROUNDING)


if BACKEND == "torch":

    @pytest.mark.full
    def test_a_trace_warns_of_nothing_here():
        code = (
            "import keras_ln, torch; layer = keras_ln.LNLSTM(2); "
            "x = torch.ones(1, 2, 3); layer(x); torch.jit.trace(layer, x)"
        )
        command = [sys.executable, "-c", code]
        ran = subprocess.run(command, check=True, capture_output=True)
        assert b"TracerWarning" in ran.stderr  # From other modules.
        assert not re.search(rb"keras_ln/.*TracerWarning", ran.stderr)

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
    def test_torch_exports_a_known_number_of_steps(tmp_path):
        """Of an unknown number Keras traces one step."""
        import torch

        path = tmp_path / "model.onnx"
        model = keras.Sequential([keras.Input((None, 3)), keras_ln.LNLSTM(2)])
        model(np.ones((1, 2, 3), "float32"))
        message = "number of steps must be known. Received: .*unknown size"
        with pytest.raises(ValueError, match=message):
            model.export(path, format="onnx", verbose=False)
        with (
            keras_ln.ops.portable(unroll=True),
            pytest.raises(ValueError, match="needs a known number of time"),
        ):
            model.export(path, format="onnx", verbose=False)
        assert not path.exists()
        # Users of torch.jit.trace hand over steps of their own.
        x = torch.ones((2, 1, 3))
        traced = torch.jit.trace(model, x)
        close(traced(x).detach(), model(x).detach(), **SAME_PROGRAM)


if BACKEND == "tensorflow":
    import tensorflow as tf

    def test_a_step_beside_an_unknown_size(tmp_path):
        """Which is no unknown number of steps."""
        weights = {
            name: np.ones(shape, "float32")
            for name, shape in {
                "kernel": (3, 2),
                "recurrent_kernel": (2, 2),
                "gamma": (2,),
                "beta": (2,),
            }.items()
        }

        class First(keras.layers.Layer):
            def call(self, x):
                return keras_ln.ops.ln_simple_rnn_step(x[:, 0], None, weights)[
                    0
                ]

        model = keras.Sequential([keras.Input((None, 3)), First()])
        model.export(tmp_path / "served", verbose=False)
        served = tf.saved_model.load(tmp_path / "served").serve
        x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
        close(served(x), model(x))

    @pytest.mark.full
    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_a_converted_model_has_nothing_to_compile(tmp_path):
        """LiteRT stands for the formats that tf2onnx and OpenVINO write."""
        traced, layer = {}, keras_ln.LNLSTM(2)

        class Records(keras.layers.Layer):
            def call(self, x):
                y = layer(x)
                if not tf.executing_eagerly():
                    traced["calls"] = calls(tf.compat.v1.get_default_graph())
                    traced["layer"] = ops.implementation(layer)
                return y

        def calls(graph):
            return [
                function.signature.name
                for function in graph.as_graph_def().library.function
                if function.attr["_XlaMustCompile"].b
            ]

        model = keras.Sequential([keras.Input((2, 3)), Records()])
        model.export(tmp_path / "model", verbose=False)
        assert traced["calls"] and traced["layer"][0] == "fused"
        model.export(tmp_path / "model.tflite", format="litert", verbose=False)
        name, reasons = traced["layer"]
        assert not traced["calls"] and name == "loop"
        assert reasons["fused"] == (
            "The file that Keras exports needs ordinary operations."
        )
        needs = keras_ln.LNLSTM(2, use_fused=True)
        model = keras.Sequential([keras.Input((2, 3)), needs])
        with pytest.raises(ValueError, match="True, but LNLSTM.*that Keras ex"):
            model.export(tmp_path / "2.tflite", format="litert", verbose=False)
