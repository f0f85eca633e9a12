"""Cotangents as frameworks send them: sparse, missing, without a dtype."""

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND
from descriptors import BY_NAME, B, D, T, U
from recurrence import Problem, layer_of
from tolerances import FLOAT64

import keras_ln

pytestmark = pytest.mark.every_backend

RNG = np.random.default_rng(9)
X = RNG.normal(size=(B, T, D))


if BACKEND == "tensorflow":
    import tensorflow as tf

    ROWS = np.array([2, 0, 2])
    # Behind a layer: what sends tf.IndexedSlices back, and the same densely.
    GATHERS = {
        "gather": lambda y: tf.gather(y, ROWS),
        "take": lambda y: keras.ops.take(y, ROWS, axis=0),
        "embedding_lookup": lambda y: tf.nn.embedding_lookup(y, ROWS),
    }

    def dense_gather(y):
        return tf.tensordot(tf.one_hot(ROWS, B, dtype=y.dtype), y, 1)

    def gradients(layer, gather, cotangent):
        """By x, and then by x of the first one's squares."""
        x = tf.constant(X)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(gather(layer(x)) ** 2 * cotangent)
            first = inner.gradient(loss, x)
            penalty = tf.reduce_sum(gather(first) ** 2)
        return first, outer.gradient(penalty, x)

    @pytest.mark.parametrize("mode", ["eager", "graph"])
    @pytest.mark.parametrize(
        ("name", "gather"),
        [
            *(("LayerNormalization", gather) for gather in GATHERS),
            ("LNSimpleRNN", "gather"),
        ],
    )
    def test_indexed_slices(name, gather, mode):
        recurrent = {} if name[:2] == "La" else {"return_sequences": True}
        layer = layer_of(name, **recurrent)
        size = (B, T, U if name == "LNSimpleRNN" else D)
        cotangent = RNG.normal(size=size)
        found, right = (
            (tf.function(gradients) if mode == "graph" else gradients)(
                layer, function, cotangent
            )
            for function in (GATHERS[gather], dense_gather)
        )
        for a, b in zip(found, right, strict=True):
            assert abs(b.numpy()).max() > 1e-3
            close(a, b, **FLOAT64)

    def test_fit_with_a_lookup_behind():
        """In `fit`, where the batch has an unknown size."""
        layers = [
            keras.Input((T, D)),
            keras_ln.LayerNormalization(),
            keras_ln.LNSimpleRNN(U),
            keras.layers.Lambda(GATHERS["take"], output_shape=(U,)),
        ]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse", jit_compile=False)
        y = RNG.normal(size=(B, U))
        losses = model.fit(X, y, epochs=3, verbose=0).history["loss"]
        assert losses[0] > losses[1] > losses[2]

    def test_a_table_that_is_looked_up_and_multiplied(recwarn):
        """Tied weights: sparse and dense gradients meet in one cotangent."""
        words = tf.constant([[1, 3], [0, 3]])

        @tf.function
        def gradient(lookup):
            with tf.GradientTape() as tape:
                tape.watch(table)
                y = layer(table)
                h = lookup(y, words)
                logits = tf.tensordot(h, y, [[2], [1]])
                loss = tf.reduce_sum(tf.nn.softmax(logits)[..., 0] ** 2)
            return tape.gradient(loss, table)

        table = tf.constant(RNG.normal(size=(5, 4)))
        layer = keras_ln.LayerNormalization(dtype="float64")
        found = gradient(tf.gather)
        right = gradient(
            lambda y, words: tf.tensordot(
                tf.one_hot(words, 5, dtype=y.dtype), y, 1
            )
        )
        assert abs(right.numpy()).max() > 1e-3
        close(found, right, **FLOAT64)
        assert not [w for w in recwarn if "IndexedSlices" in str(w.message)]

elif BACKEND == "jax":
    import jax

    def test_masks_have_no_cotangent():
        """That of a bool is float0, that of an unused output zero."""
        layer = layer_of("LNSimpleRNN")
        mask = np.ones((B, T), bool)
        y, pull = jax.vjp(lambda x, mask: layer(x, mask=mask), X, mask)
        of_x, of_mask = pull(y)
        assert of_mask.dtype == jax.dtypes.float0 and of_mask.shape == (B, T)
        assert abs(of_x).max() > 1e-3


def test_what_is_not_connected():
    """The gradient of one state, and that of what was not used."""
    layer = Problem(BY_NAME["LNSimpleRNN"], {"return_state": True}).layer()
    other = keras.ops.ones((2,), dtype="float64")
    if BACKEND == "tensorflow":
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch([x, other])
            loss = tf.reduce_sum(layer(x)[1])
        found, none = tape.gradient(loss, [x, other])
        assert none is None
    elif BACKEND == "jax":
        found, zero = jax.grad(
            lambda x, other: layer(x)[1].sum() + 0.0 * other.sum(), (0, 1)
        )(X, other)
        assert not zero.any()
    else:
        import torch

        x = torch.tensor(X, requires_grad=True)
        found, none = torch.autograd.grad(
            layer(x)[1].sum(), [x, other.requires_grad_()], allow_unused=True
        )
        assert none is None
    assert abs(keras.ops.convert_to_numpy(found)).max() > 1e-3
