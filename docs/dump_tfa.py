"""Writes the layer-normalised cells of an old model to a file.

For an environment with TensorFlow-Addons: python dump_tfa.py MODEL FILE.npz
"""

import json
import sys

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa

CELLS = (tfa.rnn.LayerNormLSTMCell, tfa.rnn.LayerNormSimpleRNNCell)


def dump(model, file):
    """Config and weights of every such cell, by the name of its layer."""
    arrays = {}
    for layer in model.submodules:
        cell = getattr(layer, "cell", None)
        if isinstance(cell, CELLS):
            weights = cell.get_weights()
            config = json.dumps(cell.get_config())
            arrays[f"{layer.name}/config"] = np.array(config)
            arrays[f"{layer.name}/count"] = np.array(len(weights))
            for k, weight in enumerate(weights):
                arrays[f"{layer.name}/{k}"] = weight
    np.savez(file, **arrays)


if __name__ == "__main__":
    classes = {cell.__name__: cell for cell in CELLS}
    model = tf.keras.models.load_model(sys.argv[1], classes, compile=False)
    dump(model, sys.argv[2])
