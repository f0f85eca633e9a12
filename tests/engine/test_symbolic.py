"""The functions of `keras_ln.ops` on `keras.KerasTensor`s, as `keras.ops`."""

import functools
import inspect

import keras
import numpy as np
import pytest
from arrays import close
from descriptors import BY_NAME, SEQUENCE_LAYERS, B, D, T, U, random_weight
from recurrence import layer_of
from tolerances import SAME_PROGRAM

import keras_ln
from keras_ln import ops

SEQUENCE_OPS = {row.op: row for row in SEQUENCE_LAYERS}


def random_weights(name):
    rng = np.random.default_rng(2)
    return {
        weight: random_weight(weight, shape, rng).astype("float32")
        for weight, shape in SEQUENCE_OPS[name].weights.items()
    }


def example():
    return np.random.default_rng(3).normal(size=(B, T, D)).astype("float32")


def same(found, expected):
    close(*map(keras.tree.flatten, (found, expected)), **SAME_PROGRAM)


def test_every_function_is_tried():
    functions = {
        name
        for name in ops.__all__
        if {"weights", "epsilon"}
        & {*inspect.signature(getattr(ops, name)).parameters}
    }
    steps = {f"{name}_step" for name in SEQUENCE_OPS if name != "bn_lstm"}
    assert functions == {*SEQUENCE_OPS, *steps, "layer_normalization"}


# JAX has unknown sizes in compiled programs alone.
@pytest.mark.every_backend
@pytest.mark.parametrize("steps", [T, None])
@pytest.mark.parametrize("name", SEQUENCE_OPS)
def test_sequence_ops(name, steps):
    run = functools.partial(
        getattr(ops, name), initial_states=None, weights=random_weights(name)
    )
    if name == "bn_lstm":
        run = functools.partial(run, learn=False)
    inputs = keras.Input((steps, D))
    mask = keras.Input((steps,), dtype="bool")
    outputs = run(inputs, mask=mask)
    last, every, states, *_ = outputs
    assert (last.shape, every.shape) == ((None, U), (None, steps, U))
    assert {state.shape for state in keras.tree.flatten(states)} == {(None, U)}
    model = keras.Model([inputs, mask], (last, every))
    kept = np.arange(T) != 1
    given = example(), np.tile(kept, (B, 1))
    # So that XLA has nothing to compile.
    with ops.portable():
        same(model(given), run(given[0], mask=given[1])[:2])
    if name == "bn_lstm":
        return
    step = functools.partial(
        getattr(ops, f"{name}_step"), states=None, weights=random_weights(name)
    )
    inputs = keras.Input((D,))
    x = given[0][:, 0]
    same(keras.Model(inputs, step(inputs))(x), step(x))


def test_a_model_of_layer_normalization(tmp_path):
    gamma, beta = np.array([0.5, 2.0]), np.array([1.0, -1.0])
    inputs, shift = keras.Input((None, D)), keras.Input(batch_shape=(D,))
    outputs = ops.layer_normalization(inputs, gamma, beta=shift, epsilon=1e-3)
    assert (outputs.shape, outputs.dtype) == ((None, None, D), "float32")
    model = keras.Model([inputs, shift], keras.ops.tanh(outputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    expected = keras.ops.tanh(
        ops.layer_normalization(example(), gamma, beta, epsilon=1e-3)
    )
    for program in (model, loaded):
        same(program([example(), beta.astype("float32")]), expected)


def test_arguments_that_are_no_tensors():
    """Nested ones too; a model may be cloned."""
    inputs = keras.Input((T, D))
    outputs = ops.layer_normalization(inputs, axis=(1, 2))
    model = keras.models.clone_model(keras.Model(inputs, outputs))
    expected = ops.layer_normalization(example(), axis=(1, 2))
    same(model(example()), expected)
    layer = keras_ln.LayerNormalization((1, 2), center=False, scale=False)
    same(expected, layer(example()))


def test_errors_are_those_of_tensors():
    with pytest.raises(ValueError, match="`x` must have a floating-point"):
        ops.layer_normalization(keras.Input((D,), dtype="int32"))
    with pytest.raises(ValueError, match=r"kernel of shape \(5, 12\) for 5"):
        ops.ln_lstm(keras.Input((T, 5)), None, random_weights("ln_lstm"))


@pytest.mark.parametrize("name", ["portable_", "__import__", "keras.ops.tanh"])
def test_a_file_may_name_our_functions_only(name):
    inputs = keras.Input((D,))
    model = keras.Model(inputs, ops.layer_normalization(inputs))
    config = model.get_config()
    (call,) = [c for c in config["layers"] if c["class_name"] == "FunctionCall"]
    call["config"]["function"] = name
    with pytest.raises(TypeError, match="`function` must be one of.*ln_lstm"):
        keras.Model.from_config(config)


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    @pytest.mark.every_backend
    @pytest.mark.parametrize("name", [*map(str, SEQUENCE_LAYERS)])
    def test_sizes_stay_known_after_a_trace_without_them(name):
        """Layers of equal options share their functions, of any sizes.

        Keras' TimeDistributed takes rows for steps if their number is unknown.
        """
        arguments = {"return_sequences": True, "return_state": True}
        if BY_NAME[name].batch_statistics:
            arguments["max_steps"] = T
        for batch, steps in ((None, None), (None, T), (B, T), (B, T - 1)):
            shape = (batch, steps, D)
            layer = layer_of(name, **arguments)

            def derived(x, layer=layer):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    results = layer(x)
                    total = tf.add_n([tf.reduce_sum(y) for y in results])
                weights = layer.trainable_weights
                return results, tape.gradient(total, [x, *weights])

            program = tf.function(derived, autograph=False)
            spec = tf.TensorSpec(shape, "float64")
            results, (d, *others) = program.get_concrete_function(
                spec
            ).structured_outputs
            outputs, *states = (tuple(y.shape) for y in results)
            assert outputs[:2] == (batch, steps)
            assert {state[0] for state in states} == {batch}
            assert tuple(d.shape) == shape
            for found, weight in zip(
                others, layer.trainable_weights, strict=True
            ):
                assert found.shape == weight.shape

    @pytest.mark.every_backend
    @pytest.mark.parametrize("steps", [T, None])
    @pytest.mark.parametrize("name", [*map(str, SEQUENCE_LAYERS)])
    def test_one_row_of_states_where_the_rows_are_unknown(name, steps):
        """At tracing nothing tells one row from as many as the batch has."""
        arguments = {"max_steps": T} if BY_NAME[name].batch_statistics else {}
        layer = layer_of(name, **arguments)
        count = len(layer.cell.equations.states)
        units = layer.cell.units

        def derived(x, *states):
            with tf.GradientTape() as tape:
                tape.watch(states)
                y = layer(x, initial_state=list(states))
                total = tf.reduce_sum(y**3)
            return y, *tape.gradient(total, states)

        signature = [tf.TensorSpec((None, steps, D), "float64")]
        signature += [tf.TensorSpec((None, units), "float64")] * count
        program = tf.function(derived, signature, autograph=False)
        rng = np.random.default_rng(4)
        x = rng.normal(size=(B, T, D))
        for rows in (1, B):
            states = rng.normal(size=(count, rows, units))
            found = program(x, *states)
            expected = derived(*map(tf.constant, (x, *states)))
            close(found, expected, rtol=1e-9, atol=1e-12)

    @pytest.mark.every_backend
    @pytest.mark.parametrize("name", [*map(str, SEQUENCE_LAYERS)])
    def test_what_looks_at_every_operation(name):
        """XLA has no kernel for what TensorFlow's debugger adds."""
        arguments = {"max_steps": T} if BY_NAME[name].batch_statistics else {}
        layer = layer_of(name, activation="softsign", **arguments)
        norm = keras_ln.LayerNormalization(epsilon=0.125, dtype="float64")

        def derived(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = norm(layer(x))
                total = tf.reduce_sum(y**3)
            return y, tape.gradient(total, x)

        x = tf.constant(np.random.default_rng(4).normal(size=(B, T, D)))
        runs = derived, tf.function(derived, autograph=False)
        # Before the first trace: what was compiled is not looked at.
        tf.debugging.enable_check_numerics()
        try:
            results = [run(x) for run in runs]
            for run in runs:
                with pytest.raises(tf.errors.InvalidArgumentError, match="NaN"):
                    run(x * np.nan)
        finally:
            tf.debugging.disable_check_numerics()
        close(results, [derived(x)] * 2, rtol=1e-9, atol=1e-12)
