"""Cotangents as frameworks send them: sparse, missing, without a dtype."""

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND
from descriptors import BY_NAME, B, D, T, U
from recurrence import Problem, layer_of
from tolerances import FLOAT64

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
