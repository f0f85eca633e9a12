"""Code on pages that runs with other code around it, or not here at all.

It is named by its page and its first line, which no other code of the page has.
"""

# Code that does not run here, and why.
ELSEWHERE = {
    (
        "docs/guides/devices.md",
        "keras.distribution.initialize(",
    ): "it needs two machines",
    (
        "docs/guides/export.md",
        'model.export("model.onnx", format="onnx")',
    ): "`nox -s onnx` runs it, with the packages that ONNX takes",
    (
        "docs/guides/export.md",
        'steps = 20 if keras.backend.backend() == "torch" else None',
    ): "tests/exports/test_formats.py exports so, with these packages",
    (
        "docs/replace.md",
        "layer = keras_ln.LNLSTM(units, center=False, zoneout=0.1)",
    ): ("haste is not installed"),
    ("docs/replace.md", "import numpy as np"): "tf_keras is not installed",
    **dict.fromkeys(
        (
            ("docs/guides/other_tools.md", "import joblib"),
            ("docs/guides/other_tools.md", "import mlflow"),
            ("docs/guides/other_tools.md", "import optuna"),
            (
                "docs/guides/other_tools.md",
                "from optuna.trial import FixedTrial",
            ),
            ("docs/guides/other_tools.md", "import lightning"),
        ),
        "tests/exports/test_other_tools.py runs it, with the tool",
    ),
}
MODEL = """
import keras, keras_ln, numpy as np
def build_model():
    sizes = [keras.Input((5, 3)), keras_ln.LNLSTM(4), keras.layers.Dense(1)]
    return keras.Sequential(sizes)
x, y = np.ones((4, 5, 3), "float32"), np.ones((4, 1), "float32")
"""
# Code that runs alone: the backend, and what stands before it and after it, as
# users have it.
ALONE = {
    ("docs/guides/devices.md", "import keras"): (
        "jax",
        "",
        MODEL + "model = build_model()\n"
        'model.compile("sgd", "mse")\nmodel.fit(x, y)\n'
        "import jax\nassert jax.device_count() == 2\n"
        "kernel = model.weights[0].value\n"
        "assert len(kernel.sharding.device_set) == 2\n",
    ),
    ("docs/guides/devices.md", "import tensorflow as tf"): (
        "tensorflow",
        MODEL + "import tensorflow as tf\n"
        "data = tf.data.Dataset.from_tensor_slices((x, y)).batch(2)\n",
        "",
    ),
    ("docs/guides/devices.md", "import torch"): (
        "torch",
        MODEL + "import os, torch\nx = torch.ones(4, 5, 3)\n"
        'os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}\n'
        'os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}\n',
        "assert tuple(outputs.shape) == (4, 1)\n"
        "torch.distributed.destroy_process_group()\n",
    ),
}
# The same in the tests' process, on TensorFlow.
WITHIN = {
    ("docs/guides/export.md", 'model.export("folder")'): (
        MODEL + "model = build_model()\n",
        "import tensorflow as tf\n"
        'served = tf.saved_model.load("folder")\n'
        "assert np.allclose(served.serve(x), model(x), atol=1e-6)\n",
    ),
    ("docs/guides/export.md", "with keras_ln.ops.portable():"): (
        MODEL + "model = build_model()\n",
        "import tensorflow as tf\n"
        'served = tf.saved_model.load("folder_to_convert")\n'
        "assert np.allclose(served.serve(x), model(x), atol=1e-6)\n",
    ),
    ("docs/guides/export.md", "with keras_ln.ops.portable(unroll=True):"): (
        MODEL + "model = keras.Sequential([keras.Input((20, 8)), "
        "keras_ln.LNLSTM(4)])\n",
        "import tensorflow as tf\n"
        'interpreter = tf.lite.Interpreter("model.tflite")\n'
        "interpreter.allocate_tensors()\n",
    ),
    ("docs/replace.md", "import json"): (
        "import numpy as np\n"
        "shapes = [(3, 16), (4, 16), 16, 16, 16, 16, 16, 4, 4]\n"
        'old = {f"rnn/{k}": np.ones(s) for k, s in enumerate(shapes)}\n'
        'old |= {"rnn/count": 9, "rnn/config": \'{"units": 4}\'}\n'
        'np.savez("old_model.npz", **old)\n',
        "assert np.all(layer.cell.get_weights()[0] == 1)\n",
    ),
    ("docs/replace.md", "import tensorflow as tf"): (
        "import tensorflow as tf\n"
        'names = ["kernel", "kernel/Adam"]\n'
        'names = ["rnn/layer_norm_basic_lstm_cell/" + n for n in names]\n'
        'names.append("dense/kernel")\n'
        'tf.raw_ops.SaveV2(prefix="model.ckpt", tensor_names=names, '
        'shape_and_slices=[""] * 3, tensors=[tf.ones((7, 16))] * 3)\n',
        "assert {n: w.shape for n, w in weights.items()} "
        "== {names[0]: (7, 16)}\n",
    ),
    ("docs/replace.md", 'model.get_layer("dense").set_weights('): (
        MODEL + "model = keras.Sequential([keras.Input((3,)), "
        'keras.layers.Dense(1, name="dense")])\n'
        'old = {"dense/0": np.ones((3, 1)), "dense/1": y[0] + 1}\n'
        'old["dense/count"] = 2\n',
        "assert float(model(np.ones((1, 3)))[0, 0]) == 5\n",
    ),
    ("docs/replace.md", "new = build_model_with_keras_3()"): (
        MODEL + "def build_model_with_keras_3():\n"
        "    lstm = keras.layers.LSTM(4)\n"
        "    return keras.Sequential([keras.Input((5, 3)), lstm])\n"
        "saved = build_model_with_keras_3().get_weights()\n"
        'np.savez("weights.npz", *saved)\n',
        "assert isinstance(normalized.layers[0], keras_ln.LNLSTM)\n"
        "assert np.all(new.get_weights()[1] == saved[1])\n",
    ),
}
