"""Writes the weights of an old model to a file, layer by layer.

For an environment with TensorFlow-Addons: python dump_tfa.py MODEL FILE.npz
"""

import json
import sys

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa

CELLS = (tfa.rnn.LayerNormLSTMCell, tfa.rnn.LayerNormSimpleRNNCell)


def parts(model):
    """What has weights of its own, by name; the cell of an RNN by the RNN's."""
    named, inside = [], []
    for layer in model.submodules:
        cell = getattr(layer, "cell", None)
        if cell is None:
            continue
        inside += [cell, *cell.submodules]
        if hasattr(cell, "cells"):
            for k, one in enumerate(cell.cells):
                named.append((f"{layer.name}/cell_{k}", one))
        else:
            named.append((layer.name, cell))
    known = {id(part) for part in inside}
    for layer in model.submodules:
        is_layer = isinstance(layer, tf.keras.layers.Layer)
        if is_layer and not layer.submodules and id(layer) not in known:
            named.append((layer.name, layer))
    return named


def dump(model, file):
    """Config and weights of every layer and cell with weights, by its name."""
    arrays, found = {}, parts(model)
    known = {id(weight) for _, part in found for weight in part.weights}
    lost = [w.name for w in model.weights if id(w) not in known]
    if lost:
        raise ValueError(
            f"Layers with layers inside own {', '.join(lost)}: read them with "
            "get_weights(), and leave those layers out of the model."
        )
    for name, part in found:
        weights = part.get_weights()
        if not weights:
            continue
        if f"{name}/config" in arrays:
            raise ValueError(f"There are two layers {name!r}: rename one.")
        arrays[f"{name}/config"] = np.array(json.dumps(part.get_config()))
        arrays[f"{name}/count"] = np.array(len(weights))
        for k, weight in enumerate(weights):
            arrays[f"{name}/{k}"] = weight
        print(name, type(part).__name__)
    np.savez(file, **arrays)


if __name__ == "__main__":
    classes = {cell.__name__: cell for cell in CELLS}
    model = tf.keras.models.load_model(sys.argv[1], classes, compile=False)
    dump(model, sys.argv[2])
