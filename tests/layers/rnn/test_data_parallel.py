"""Training on two virtual devices ends with the weights of one device.

The devices must be there before the framework starts: a process of its own.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND

COMMON = """
import sys
import keras, numpy as np
import keras_ln

keras.config.set_floatx("float64")

def train():
    rng = np.random.default_rng(0)
    layers = [
        keras_ln.LNLSTM(4, use_fused=True),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((5, 3)), *layers])
    shapes = [weight.shape for weight in model.weights]
    model.set_weights([rng.normal(size=shape) for shape in shapes])
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    x = rng.normal(size=(16, 5, 3))
    y = rng.normal(size=(16, 1))
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return model.get_weights()
"""
PROGRAMS = {
    "tensorflow": """
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
one = train()
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
with strategy.scope():
    two = train()
""",
    "jax": """
import jax
assert len(jax.devices()) == 2
one = train()
keras.distribution.set_distribution(keras.distribution.DataParallel())
two = train()
""",
}
SAVE = """
np.savez(sys.argv[1], *one, *two)
"""


if BACKEND in PROGRAMS:

    @pytest.mark.every_backend
    def test_two_devices_train_like_one(tmp_path):
        subprocess.run(
            [
                sys.executable,
                "-c",
                COMMON + PROGRAMS[BACKEND] + SAVE,
                tmp_path / "weights.npz",
            ],
            env=os.environ
            | {
                "XLA_FLAGS": os.environ["XLA_FLAGS"]
                + " --xla_force_host_platform_device_count=2"
            },
            check=True,
            timeout=300,
        )
        weights = list(np.load(tmp_path / "weights.npz").values())
        half = len(weights) // 2
        assert half == 11
        close(weights[half:], weights[:half], rtol=1e-10, atol=1e-12)
