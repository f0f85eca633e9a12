"""A Keras layer as a program: its steps in every mode of the framework.

A training step is the forward pass and the gradients of the layer's weights
and of its input, for a given cotangent of the output.
"""

import functools
import inspect
import os

from benchmarks.harness import MODES, SQUARE, after_products, waiting


def layer_programs(name, make_layer, arrays, dtype, modes=("graph", "XLA")):
    """{provider: program} of one layer.

    Args:
        name: the provider; backend and mode are added to it.
        make_layer: function without arguments that returns a built layer.
        arrays: input and cotangent.
        dtype: the dtype of the layer's inputs and output.
        modes: on TensorFlow: "graph", "XLA" or both.
    """
    import keras

    backend = keras.backend.backend()
    if backend == "tensorflow":
        return {
            f"{name}, tensorflow {mode}": lambda mode=mode: _tensorflow(
                make_layer(), arrays, dtype, mode == "XLA"
            )
            for mode in modes
        }
    if backend == "jax":
        return {f"{name}, jax": lambda: jax_steps(make_layer(), arrays, dtype)}
    return {f"{name}, torch": lambda: _torch(make_layer(), arrays, dtype)}


def without_kernels(programs):
    """The same programs, run without keras-ln-kernels."""

    def off(function):
        # `before` and the other attributes of a step stay with it.
        @functools.wraps(function)
        def run():
            before = os.environ.get("KERAS_LN_KERNELS")
            # A layer reads it when it is called, on torch at every step.
            os.environ["KERAS_LN_KERNELS"] = "0"
            result = function()
            del os.environ["KERAS_LN_KERNELS"]
            if before is not None:
                os.environ["KERAS_LN_KERNELS"] = before
            return result

        if hasattr(function, "launch"):
            run.launch = off(function.launch)
        return run

    def made(program):
        steps = off(program)()
        return {mode: off(step) for mode, step in steps.items()}

    return {
        provider: functools.partial(made, program)
        for provider, program in programs.items()
    }


def _tensorflow(layer, arrays, dtype, jit_compile):
    import tensorflow as tf

    x, cotangent = (tf.cast(tf.constant(a), dtype) for a in arrays)
    weights = [variable.value for variable in layer.trainable_weights]
    call = _caller(layer)

    @tf.function(jit_compile=jit_compile)
    def train(x, cotangent):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = call(x, True)
        return y, tape.gradient(y, [x, *weights], output_gradients=cotangent)

    @tf.function(jit_compile=jit_compile)
    def infer(x):
        return call(x, False)

    def forced(outputs):
        # On a GPU this copy waits for the program; on a CPU it copies nothing.
        return tf.nest.flatten(outputs)[-1][..., :1].numpy()

    launches = (lambda: train(x, cotangent), lambda: infer(x))
    steps = waiting(dict(zip(MODES, launches, strict=True)), forced)
    return after_products(tf.ones(SQUARE), steps)


def _caller(layer):
    """`call(x, training)`, which drops `training` if the layer has none."""
    if "training" not in inspect.signature(layer.call).parameters:
        return lambda x, training: layer(x)
    return lambda x, training: layer(x, training=training)


def jax_steps(layer, arrays, dtype):
    """The steps of a layer of Keras on JAX."""
    import keras

    # Seeds are arguments too: XLA would evaluate draws from a constant seed
    # when it compiles.
    variables = [layer.trainable_variables, layer.non_trainable_variables]
    call = _caller(layer)

    def stateless(weights, x, training, others):
        mapping = zip(sum(variables, []), [*weights, *others], strict=True)
        with keras.StatelessScope(list(mapping)):
            return call(x, training)

    weights, others = ([v.value for v in part] for part in variables)
    return function_steps(stateless, weights, arrays, dtype, others)


def function_steps(call, weights, arrays, dtype, *others):
    """The steps of `call(weights, x, training, *others)`, a JAX function."""
    import jax

    x, cotangent = (jax.numpy.asarray(a, dtype) for a in arrays)

    @jax.jit
    def train(weights, x, cotangent, *others):
        y, pull_back = jax.vjp(
            lambda x, w: call(w, x, True, *others), x, weights
        )
        return y, jax.tree.leaves(pull_back(cotangent))

    @jax.jit
    def infer(weights, x, *others):
        return call(weights, x, False, *others)

    launches = (
        lambda: train(weights, x, cotangent, *others),
        lambda: infer(weights, x, *others),
    )
    launches = dict(zip(MODES, launches, strict=True))
    steps = waiting(launches, jax.block_until_ready)
    return after_products(jax.numpy.ones(SQUARE), steps)


def _torch(layer, arrays, dtype):
    weights = [variable.value for variable in layer.trainable_weights]
    return module_steps(_caller(layer), weights, arrays, dtype)


def module_steps(call, weights, arrays, dtype):
    """The steps of `call(x, training)`, a function of torch."""
    import torch

    where = weights[0].device
    x, cotangent = (
        torch.tensor(a, dtype=getattr(torch, dtype), device=where)
        for a in arrays
    )
    x.requires_grad_()

    def forced(outputs):
        if where.type == "cuda":
            torch.cuda.synchronize()
        return outputs

    def train():
        y = call(x, True)
        return y, torch.autograd.grad(y, [x, *weights], cotangent)

    @torch.no_grad()
    def infer():
        return call(x, False)

    steps = waiting(dict(zip(MODES, (train, infer), strict=True)), forced)
    return after_products(torch.ones(SQUARE, device=where), steps)
