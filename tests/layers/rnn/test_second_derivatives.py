"""Derivatives of derivatives of the fused op, against the cell loop's."""

import keras
import numpy as np
import pytest
from backend_gradients import BACKEND
from descriptors import SEQUENCE_LAYERS
from pairwise import full_but
from recurrence import MASKS, Problem

from keras_ln import backend

pytestmark = pytest.mark.compiled

# Two autodiffs of some thirty operations each.
TOLERANCE = {"rtol": 1e-8, "atol": 1e-10}


def gradient_penalty(layer, x, mask):
    """Gradients, by x and weights, of |d sum(y^2) / dx|^2."""
    run = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}[BACKEND]
    return [
        keras.ops.convert_to_numpy(gradient) for gradient in run(layer, x, mask)
    ]


def _tensorflow(layer, x, mask):
    import tensorflow as tf

    x = tf.constant(x)
    sources = [x, *(v.value for v in layer.trainable_variables)]
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = tf.reduce_sum(layer(x, mask=mask, training=True) ** 2)
        penalty = tf.reduce_sum(inner.gradient(loss, x) ** 2)
    return outer.gradient(penalty, sources, unconnected_gradients="zero")


def _jax(layer, x, mask):
    import jax

    weights = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]

    def loss(x, weights):
        y, _ = layer.stateless_call(
            weights, others, x, mask=mask, training=True
        )
        return (y**2).sum()

    def penalty(x, weights):
        return (jax.grad(loss)(x, weights) ** 2).sum()

    differentiate = jax.jit(jax.grad(penalty, argnums=(0, 1)))
    of_x, of_weights = differentiate(x, weights)
    return [of_x, *of_weights]


def _torch(layer, x, mask):
    import torch

    x = torch.tensor(x, requires_grad=True)
    weights = [v.value for v in layer.trainable_variables]
    mask = None if mask is None else torch.tensor(mask)
    loss = (layer(x, mask=mask, training=True) ** 2).sum()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    sources = [x, *weights]
    gradients = torch.autograd.grad(
        (gradient**2).sum(), sources, allow_unused=True
    )
    return [
        torch.zeros_like(source) if gradient is None else gradient.detach()
        for source, gradient in zip(sources, gradients, strict=True)
    ]


@pytest.mark.parametrize(
    "mask", [pytest.param("none", marks=pytest.mark.full), "middle"]
)
@pytest.mark.parametrize(
    # JAX takes up to ten seconds for each, TensorFlow five.
    "row",
    full_but(["LNLSTM", "BNLSTM"], SEQUENCE_LAYERS),
    ids=str,
)
def test_gradient_of_a_gradient(row, mask):
    problem = Problem(row, {"return_sequences": True})
    fused, loop = (
        gradient_penalty(problem.layer(use_fused=use), problem.x, MASKS[mask])
        for use in (True, False)
    )
    assert abs(loop[0]).max() > 1e-3
    for found, expected in zip(fused, loop, strict=True):
        np.testing.assert_allclose(found, expected, **TOLERANCE)


@pytest.mark.parametrize(
    "row, on_cpu",
    [
        pytest.param(
            row,
            on_cpu,
            # Each is compiled twice.
            marks=[]
            if BACKEND == "torch" or (row.name == "LNLSTM" and not on_cpu)
            else [pytest.mark.full],
        )
        for row in SEQUENCE_LAYERS
        for on_cpu in (True, False)
    ],
    ids=str,
)
def test_where_rows_have_no_variance(row, on_cpu, monkeypatch):
    """Steps of zeros, from a state of zero."""
    monkeypatch.setattr(backend, "on_cpu", lambda: on_cpu)
    problem = Problem(row, {"return_sequences": True})
    problem.x[:, :2], mask = 0.0, MASKS["middle"]
    fused, loop = (
        gradient_penalty(problem.layer(use_fused=use), problem.x, mask)
        for use in (True, False)
    )
    for found, expected in zip(fused, loop, strict=True):
        np.testing.assert_allclose(found, expected, **TOLERANCE)


def test_with_zoneout():
    row = next(r for r in SEQUENCE_LAYERS if r.name == "LNLSTM")
    problem = Problem(row, {"return_sequences": True})
    rng = np.random.default_rng(0)
    problem.choices = {
        argument: rng.random((*problem.shape[:2], 3)) < 0.4
        for argument in ("zoneout", "cell_zoneout")
    }
    fused, loop = (
        gradient_penalty(
            problem.layer(use_fused=use), problem.x, MASKS["middle"]
        )
        for use in (True, False)
    )
    assert abs(loop[0]).max() > 1e-3
    for found, expected in zip(fused, loop, strict=True):
        np.testing.assert_allclose(found, expected, **TOLERANCE)


if BACKEND == "tensorflow":

    def test_persistent_tape():
        import tensorflow as tf

        row = next(r for r in SEQUENCE_LAYERS if r.name == "LNLSTM")
        problem = Problem(row, {})
        layer, x = problem.layer(), tf.constant(problem.x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = layer(x, training=True)
            once, twice = tf.reduce_sum(y), 2.0 * tf.reduce_sum(y)
        first, second = tape.gradient(once, x), tape.gradient(twice, x)
        np.testing.assert_allclose(2.0 * first, second, rtol=1e-14)
        assert abs(first.numpy()).max() > 1e-3
