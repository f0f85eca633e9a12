"""Sequences of many lengths: none of them costs a compilation."""

import sys

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND
from descriptors import SEQUENCE_LAYERS, D
from pairwise import one_everywhere

from keras_ln.engine.implementations import fused_op

if BACKEND == "tensorflow":
    import tensorflow as tf

    def compiled_by_itself(layer, steps):
        """How many functions XLA has to compile, in a step of training."""

        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(layer(x, training=True))
            return tape.gradient(loss, [x, *layer.trainable_weights])

        graph = (
            tf.function(step)
            .get_concrete_function(tf.TensorSpec((None, steps, D), "float32"))
            .graph.as_graph_def()
        )
        return sum(f.attr["_XlaMustCompile"].b for f in graph.library.function)

    @pytest.mark.every_backend
    @pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
    @pytest.mark.usefixtures("without_kernels")
    def test_only_a_known_length_is_compiled_for(row, monkeypatch):
        calls = []

        def counted(*args):
            calls.append(args)
            return vjp(*args)

        door = sys.modules[fused_op.__module__]
        vjp = door.vjp
        monkeypatch.setattr(door, "vjp", counted)
        fused_op.cache_clear()
        layer = row.make(return_sequences=True)
        layer.build((None, 5, D))
        assert compiled_by_itself(layer, steps=5) == 2
        by_hand = len(calls)
        assert compiled_by_itself(layer, steps=None) == 0
        # The gradient stays the hand-written one.
        assert len(calls) == 2 * by_hand > 0
        fused_op.cache_clear()

    @pytest.mark.every_backend
    @pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
    @pytest.mark.parametrize("sizes", [(None, None, None), (2, 5, None)])
    def test_open_number_of_features(row, sizes):
        """Data sets made by `from_generator` leave it open; weights tell it."""
        layer = row.make()
        x = np.random.default_rng(0).normal(size=(2, 5, D)).astype("float32")
        layer(x)

        def gradients(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(layer(x, training=True) ** 2)
            return [loss, *tape.gradient(loss, [x, *layer.trainable_weights])]

        signature = [tf.TensorSpec(sizes, "float32")]
        opened = tf.function(gradients, input_signature=signature)
        known = tf.function(gradients)
        for got, wanted in zip(
            opened(tf.constant(x)), known(tf.constant(x)), strict=True
        ):
            close(got, wanted, rtol=1e-4, atol=1e-5)
        with pytest.raises(tf.errors.InvalidArgumentError):
            opened(tf.constant(x[..., :-1]))


@pytest.mark.parametrize("row", one_everywhere(SEQUENCE_LAYERS, "LNLSTM"))
def test_fit_over_many_lengths(row):
    """As with the cell loop, in float64.

    Norms of two rows or features multiply the rounding errors of an update.
    """
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    rng = np.random.default_rng(3)
    lengths = (3, 1, 4, 2, 3)
    x = [rng.normal(size=(n % 3 + 2, n, D)) for n in lengths]
    y = [x_.mean((1, 2)) for x_ in x]

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return len(lengths)

        def __getitem__(self, index):
            return x[index], y[index]

    def trained(use_fused):
        keras.utils.set_random_seed(5)
        steps = {"max_steps": 4} if row.batch_statistics else {}
        inputs = keras.Input((None, D))
        h = row.make(use_fused=use_fused, **steps)(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1)(h))
        model.compile(keras.optimizers.SGD(0.1), "mse")
        history = model.fit(Batches(), epochs=2, shuffle=False, verbose=0)
        return [*history.history["loss"], *model.get_weights()]

    close(trained("auto"), trained(False), rtol=1e-6, atol=1e-9)
