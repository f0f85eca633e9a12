"""Saves a model of TensorFlow-Addons, and what it predicts.

For an environment with TensorFlow-Addons: python old_model.py MODEL.h5; the
inputs and outputs are in MODEL.outputs.npz.
"""

import sys
from pathlib import Path

import numpy as np


def main(path):
    """Builds, saves and runs the model."""
    # Here, as pytest imports every file to look for examples in it.
    import tensorflow as tf
    import tensorflow_addons as tfa

    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((None, 3)),
            layers.RNN(
                tfa.rnn.LayerNormLSTMCell(4), return_sequences=True, name="lstm"
            ),
            layers.RNN(
                [tfa.rnn.LayerNormLSTMCell(4), tfa.rnn.LayerNormLSTMCell(3)],
                return_sequences=True,
                name="two",
            ),
            layers.RNN(tfa.rnn.LayerNormSimpleRNNCell(5), name="simple"),
            layers.Dense(2, name="dense"),
        ]
    )
    rng = np.random.default_rng(0)
    model.set_weights(
        [0.3 + 0.5 * rng.normal(size=w.shape) for w in model.get_weights()]
    )
    model.save(path)
    x = rng.normal(size=(2, 7, 3)).astype("float32")
    file = Path(path).with_suffix(".outputs.npz")
    np.savez(file, x=x, y=model.predict(x))


if __name__ == "__main__":
    main(sys.argv[1])
