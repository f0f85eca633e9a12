"""Values and gradients of a layer by the framework's own autodiff."""

import dataclasses

import keras
import numpy as np
from arrays import to_numpy

from keras_ln import backend

BACKEND = keras.backend.backend()
# Call arguments without a gradient.
CONSTANTS = ("mask", "first_step", "reset")


def programs_are(monkeypatch, **facts):
    """Lets the backend tell these fields of every `TraceContext`."""
    context = backend.trace_context
    monkeypatch.setattr(
        backend,
        "trace_context",
        lambda arrays: context(arrays)._replace(**facts),
    )
    if "on_cpu" in facts:
        monkeypatch.setattr(backend, "on_cpu", lambda: facts["on_cpu"])


@dataclasses.dataclass
class Result:
    """What one call of a layer gave, as NumPy arrays.

    `outputs` is the flat list of outputs; `gradients` has the keys `x`,
    `state0`, ... and the names of the trainable weights.
    """

    outputs: list
    gradients: dict


def value_and_gradients(
    layer,
    x,
    cotangents=None,
    *,
    states=None,
    mask=None,
    reset=None,
    reset_states=None,
    training=False,
    first_step=None,
    compiled=False,
    unknown_sizes=False,
):
    """Call `layer` on x and differentiate sum(output * cotangent).

    Args:
        layer: a layer; built here if it is not yet. Its variables (seeds,
            moving statistics) are updated as by an ordinary call.
        x: NumPy array in the layer's dtype.
        cotangents: one array, or None, per output; None stands for ones.
        states: initial states of a recurrent layer, or None.
        mask: boolean array (B, T), or None.
        reset: likewise.
        reset_states: states after a reset, or None.
        training: passed on to layers that take it.
        first_step: the call argument of that name, as a tensor, or None.
        compiled: inside tf.function or jax.jit; torch has no difference.
        unknown_sizes: with `compiled`, batch and time are unknown to
            TensorFlow. The others always know them.
    """
    if not layer.built:
        layer.build(x.shape)
    arrays = {"x": x}
    options = {}
    for kind, given in (("state", states), ("reset", reset_states)):
        if given is not None:
            options[kind] = [f"{kind}{k}" for k in range(len(given))]
            arrays |= zip(options[kind], given, strict=True)
    if mask is not None:
        arrays["mask"] = mask
    if reset is not None:
        arrays["reset"] = reset
    if first_step is not None:
        arrays["first_step"] = np.asarray(first_step)
    if layer._call_has_training_arg:
        options["training"] = training
    run = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}[BACKEND]
    outputs, gradients = run(
        layer, arrays, options, cotangents, compiled, unknown_sizes
    )
    return Result(
        [to_numpy(output) for output in outputs],
        {name: to_numpy(gradient) for name, gradient in gradients.items()},
    )


def _arguments(arrays, options):
    """The layer's call arguments after x."""
    arguments = {
        argument: [arrays[name] for name in options[kind]]
        for kind, argument in (
            ("state", "initial_state"),
            ("reset", "reset_state"),
        )
        if kind in options
    }
    arguments |= {n: arrays[n] for n in CONSTANTS if n in arrays}
    if "training" in options:
        arguments["training"] = options["training"]
    return arguments


def _loss(outputs, cotangents):
    """Outputs as a list, and the scalar to differentiate."""
    outputs = keras.tree.flatten(outputs)
    if cotangents is None:
        cotangents = [np.ones(output.shape) for output in outputs]
    terms = [
        keras.ops.sum(
            output * keras.ops.convert_to_tensor(cotangent, output.dtype)
        )
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if cotangent is not None
    ]
    loss = terms[0]
    for term in terms[1:]:
        loss = loss + term
    return loss, outputs


def _tensorflow(layer, arrays, options, cotangents, compiled, unknown_sizes):
    import tensorflow as tf

    weights = {v.name: v.value for v in layer.trainable_variables}

    def run(arrays):
        sources = {k: v for k, v in arrays.items() if k not in CONSTANTS}
        with tf.GradientTape() as tape:
            tape.watch(list(sources.values()))
            outputs = layer(arrays["x"], **_arguments(arrays, options))
            loss, outputs = _loss(outputs, cotangents)
        gradients = tape.gradient(
            loss, {**sources, **weights}, unconnected_gradients="zero"
        )
        return outputs, gradients

    arrays = {k: tf.convert_to_tensor(v) for k, v in arrays.items()}
    if compiled:
        unknown = {"x": 2, "mask": 2, "reset": 2} if unknown_sizes else {}
        specs = {}
        for name, value in arrays.items():
            free = unknown.get(name, 1) if unknown_sizes else 0
            shape = [None] * min(free, value.ndim) + list(value.shape[free:])
            specs[name] = tf.TensorSpec(shape, value.dtype)
        run = tf.function(run, input_signature=[specs])
    return run(arrays)


def _jax(layer, arrays, options, cotangents, compiled, unknown_sizes):
    import jax

    arrays = {k: jax.numpy.asarray(v) for k, v in arrays.items()}
    constants = {k: arrays.pop(k) for k in CONSTANTS if k in arrays}
    weights = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]

    def run(arrays, weights, others, constants):
        arguments = _arguments({**arrays, **constants}, options)
        # As a call of the layer does, and `stateless_call` does not (3.15).
        x = layer.dtype_policy.convert_input(
            arrays["x"], layer.autocast, layer.input_dtype
        )
        outputs, others = layer.stateless_call(weights, others, x, **arguments)
        loss, outputs = _loss(outputs, cotangents)
        return loss, (outputs, others)

    differentiate = jax.grad(run, argnums=(0, 1), has_aux=True)
    if compiled:
        differentiate = jax.jit(differentiate)
    (of_arrays, of_weights), (outputs, others) = differentiate(
        arrays, weights, others, constants
    )
    for variable, value in zip(
        layer.non_trainable_variables, others, strict=True
    ):
        variable.assign(value)
    names = [v.name for v in layer.trainable_variables]
    return outputs, {**of_arrays, **dict(zip(names, of_weights, strict=True))}


def _torch(layer, arrays, options, cotangents, compiled, unknown_sizes):
    import torch

    sources = {
        name: torch.tensor(value, requires_grad=name not in CONSTANTS)
        for name, value in arrays.items()
    }
    outputs = layer(sources["x"], **_arguments(sources, options))
    loss, outputs = _loss(outputs, cotangents)
    sources |= {v.name: v.value for v in layer.trainable_variables}
    sources = {k: v for k, v in sources.items() if k not in CONSTANTS}
    gradients = torch.autograd.grad(
        loss, list(sources.values()), allow_unused=True
    )
    return [output.detach() for output in outputs], {
        name: torch.zeros_like(source) if gradient is None else gradient
        for (name, source), gradient in zip(
            sources.items(), gradients, strict=True
        )
    }


def forward(layer, training=False):
    """The layer's call as a compiled function of NumPy arrays.

    `f(x, **options)` returns the flat outputs as NumPy arrays and sees every
    later change of the weights; it does not update the layer's variables.
    """
    if layer._call_has_training_arg:
        fixed = {"training": training}
    else:
        fixed = {}
    if BACKEND == "jax":
        import jax

        compiled = jax.jit(
            lambda weights, others, x, options: layer.stateless_call(
                weights, others, x, **options, **fixed
            )[0]
        )

        def call(x, **options):
            weights = [v.value for v in layer.trainable_variables]
            others = [v.value for v in layer.non_trainable_variables]
            return compiled(weights, others, x, options)
    elif BACKEND == "tensorflow":
        import tensorflow as tf

        compiled = tf.function(
            lambda x, options: layer(x, **options, **fixed), autograph=False
        )

        def call(x, **options):
            arrays = (x, options)
            return compiled(
                *tf.nest.map_structure(tf.convert_to_tensor, arrays)
            )
    else:

        def call(x, **options):
            return layer(x, **options, **fixed)

    return lambda x, **options: [
        to_numpy(output).copy()
        for output in keras.tree.flatten(call(x, **options))
    ]


def compiled(function):
    """``function`` as the framework's graph mode would run it."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(function, autograph=False)
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    return function


def gradients(function, *xs):
    """Gradients of a scalar function of structures, by the framework."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(keras.tree.flatten(xs))
            y = function(*xs)
        return tape.gradient(y, xs, unconnected_gradients="zero")
    if BACKEND == "jax":
        import jax

        return jax.grad(function, argnums=tuple(range(len(xs))))(*xs)
    import torch

    xs = keras.tree.map_structure(
        lambda x: x if x.requires_grad else x.detach().requires_grad_(), xs
    )
    y, flat = function(*xs), keras.tree.flatten(xs)
    found = torch.autograd.grad(
        y, flat, create_graph=True, materialize_grads=True
    )
    return keras.tree.pack_sequence_as(xs, list(found))


# Two autodiffs of some thirty operations each.
TOLERANCE = {"rtol": 1e-8, "atol": 1e-10}


def gradient_penalty(layer, x, mask, transform=lambda run: run, **options):
    """Gradients, by x and weights, of |d sum(y^2) / dx|^2.

    ``transform`` is for example `tf.function`; the layer takes the options.
    """
    weights, others = (
        [v.value for v in variables]
        for variables in (
            layer.trainable_variables,
            layer.non_trainable_variables,
        )
    )
    if mask is not None:
        mask = keras.ops.convert_to_tensor(mask)
    options |= {"mask": mask, "training": True}

    def loss(x, weights):
        y, _ = layer.stateless_call(weights, others, x, **options)
        return keras.ops.sum(y**2)

    def penalty(x, weights):
        (slope,) = gradients(lambda x: loss(x, weights), x)
        return keras.ops.sum(slope**2)

    run = transform(lambda x, weights: gradients(penalty, x, weights))
    if BACKEND == "jax":
        run = compiled(run)
    of_x, of_weights = run(keras.ops.convert_to_tensor(x), weights)
    return [to_numpy(gradient) for gradient in (of_x, *of_weights)]
