"""A function whose gradients take derivatives of derivatives."""

import keras
from backend_gradients import BACKEND

# Two autodiffs of some thirty operations each.
TOLERANCE = {"rtol": 1e-8, "atol": 1e-10}


def gradient_penalty(layer, x, mask, transform=lambda run: run, **options):
    """Gradients, by x and weights, of |d sum(y^2) / dx|^2.

    ``transform`` is for example `tf.function`; the layer takes the options.
    """
    run = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}[BACKEND]
    run = transform(run)
    return [
        keras.ops.convert_to_numpy(gradient)
        for gradient in run(layer, x, mask, **options)
    ]


def _tensorflow(layer, x, mask, **options):
    import tensorflow as tf

    x = tf.convert_to_tensor(x)
    sources = [x, *(v.value for v in layer.trainable_variables)]
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = tf.reduce_sum(
                layer(x, mask=mask, training=True, **options) ** 2
            )
        penalty = tf.reduce_sum(inner.gradient(loss, x) ** 2)
    return outer.gradient(penalty, sources, unconnected_gradients="zero")


def _jax(layer, x, mask, **options):
    import jax

    weights = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]

    def loss(x, weights):
        y, _ = layer.stateless_call(
            weights, others, x, mask=mask, training=True, **options
        )
        return (y**2).sum()

    def penalty(x, weights):
        return (jax.grad(loss)(x, weights) ** 2).sum()

    differentiate = jax.jit(jax.grad(penalty, argnums=(0, 1)))
    of_x, of_weights = differentiate(x, weights)
    return [of_x, *of_weights]


def _torch(layer, x, mask, **options):
    import torch

    x = torch.tensor(x, requires_grad=True)
    weights = [v.value for v in layer.trainable_variables]
    mask = None if mask is None else torch.tensor(mask)
    loss = (layer(x, mask=mask, training=True, **options) ** 2).sum()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    sources = [x, *weights]
    gradients = torch.autograd.grad(
        (gradient**2).sum(), sources, allow_unused=True
    )
    return [
        torch.zeros_like(source) if gradient is None else gradient.detach()
        for source, gradient in zip(sources, gradients, strict=True)
    ]
