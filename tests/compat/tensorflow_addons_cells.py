"""Runs the cells of TensorFlow-Addons and writes down what they did.

For an environment with TensorFlow-Addons 0.23, TensorFlow 2.15 and without
keras_ln: python tensorflow_addons_cells.py FILE. Everything is float64. Per
case the file holds config, x, mask, weight0, ..., state0, ..., the outputs y
and final0, ..., their cotangents, and the gradients of the sum of products.
"""

import json
import sys

import numpy as np

B, T, D, U = 3, 5, 2, 4
MASKS = {
    "none": np.ones((B, T), bool),
    "right": np.arange(T) < np.array([[5], [3], [1]]),
    # Where a first step is masked, the layers of Keras 2 put out zeros.
    "middle": np.array([[1, 0, 1, 1, 0], [1, 1, 0, 0, 1], [1, 1, 1, 1, 1]]) > 0,
}
LSTM, SIMPLE_RNN = "LayerNormLSTMCell", "LayerNormSimpleRNNCell"
CASES = {
    "lstm": (LSTM, {}, "none"),
    "lstm_masked": (LSTM, {"norm_epsilon": 1e-5}, "right"),
    "lstm_without_bias": (LSTM, {"use_bias": False}, "middle"),
    "lstm_other_activations": (
        LSTM,
        {"activation": "relu", "recurrent_activation": "linear"},
        "none",
    ),
    "simple_rnn": (SIMPLE_RNN, {}, "none"),
    "simple_rnn_masked": (SIMPLE_RNN, {"layernorm_epsilon": 1e-3}, "middle"),
    "simple_rnn_without_bias": (SIMPLE_RNN, {"use_bias": False}, "right"),
    "lstm_hard_sigmoid": (
        LSTM,
        {"activation": "hard_sigmoid", "recurrent_activation": "hard_sigmoid"},
        "none",
    ),
    "simple_rnn_hard_sigmoid": (
        SIMPLE_RNN,
        {"activation": "hard_sigmoid"},
        "none",
    ),
}


def record(cell_class, arguments, mask, seed):
    """Arrays by name: what goes into a layer and what comes out."""
    # Here, as pytest imports every file to look for examples in it.
    import tensorflow as tf
    import tensorflow_addons as tfa

    tf.keras.backend.set_floatx("float64")
    rng = np.random.default_rng(seed)
    cell = getattr(tfa.rnn, cell_class)(U, **arguments)
    layer = tf.keras.layers.RNN(cell, return_sequences=True, return_state=True)
    x = tf.constant(rng.normal(size=(B, T, D)))
    layer(x)
    # Not the ones and zeros of a new cell, which would hide mistakes.
    layer.set_weights(
        [0.3 + 0.5 * rng.normal(size=w.shape) for w in layer.get_weights()]
    )
    count = len(tf.nest.flatten(cell.state_size))
    states = [tf.constant(rng.normal(size=(B, U))) for _ in range(count)]
    with tf.GradientTape() as tape:
        tape.watch([x, *states])
        outputs = layer(x, mask=tf.constant(mask), initial_state=states)
        cotangents = [rng.normal(size=output.shape) for output in outputs]
        loss = tf.add_n(
            [
                tf.reduce_sum(y * c)
                for y, c in zip(outputs, cotangents, strict=True)
            ]
        )
    inputs = {"x": x}
    inputs.update(_numbered("state", states))
    inputs.update(_numbered("weight", cell.weights))
    gradients = tape.gradient(loss, list(inputs.values()))
    found = {"config": json.dumps(cell.get_config()), "mask": mask}
    found.update(inputs)
    found.update(_numbered("output", outputs))
    found.update(_numbered("cotangent", cotangents))
    found.update(
        {f"gradient_{n}": g for n, g in zip(inputs, gradients, strict=True)}
    )
    return {name: np.array(value) for name, value in found.items()}


def _numbered(name, values):
    return {f"{name}{k}": value for k, value in enumerate(values)}


def main(argv):
    """Writes all cases to the file that is named."""
    arrays = {}
    for seed, (case, (cell, arguments, mask)) in enumerate(CASES.items()):
        found = record(cell, arguments, MASKS[mask], seed)
        arrays.update({f"{case}/{name}": found[name] for name in found})
    (path,) = argv
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main(sys.argv[1:])
