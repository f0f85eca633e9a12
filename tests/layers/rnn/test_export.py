"""Exported models give the same values, and gradients, without our layers."""

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND
from descriptors import SEQUENCE_LAYERS, randomize
from pairwise import one_everywhere

if BACKEND == "tensorflow":
    import tensorflow as tf

    def model_of(row):
        arguments = {"max_steps": 4} if row.batch_statistics else {}
        inputs = keras.Input((None, row.input_shape[-1]))
        layer = row.make(use_fused=True, dtype="float64", **arguments)
        model = keras.Model(inputs, layer(inputs))
        randomize(layer, 0)
        return model

    @pytest.mark.parametrize(
        "row", one_everywhere(SEQUENCE_LAYERS, "LNLSTM", "BNLSTM")
    )
    def test_saved_model_has_the_gradients(row, tmp_path):
        model = model_of(row)
        module = tf.Module()
        module.weights = [v.value for v in model.trainable_variables]
        module.others = [v.value for v in model.non_trainable_variables]

        @tf.function(
            input_signature=[
                tf.TensorSpec((None, None, row.input_shape[-1]), "float64")
            ]
        )
        def call(x):
            return model(x, training=True)

        module.call = call
        tf.saved_model.save(
            module,
            tmp_path / "model",
            options=tf.saved_model.SaveOptions(
                experimental_custom_gradients=True
            ),
        )
        reloaded = tf.saved_model.load(tmp_path / "model")
        x = tf.constant(np.random.default_rng(0).normal(size=row.input_shape))
        found = [
            gradients(function, x, weights)
            for function, weights in (
                (lambda x: model(x, training=True), module.weights),
                (reloaded.call, reloaded.weights),
            )
        ]
        for ours, theirs in zip(*found, strict=True):
            assert abs(ours.numpy()).max() > 1e-9
            close(theirs, ours, rtol=1e-9, atol=1e-11)

    def gradients(function, x, weights):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            loss = tf.reduce_sum(y**3)
        return [y, *tape.gradient(loss, [x, *weights])]
