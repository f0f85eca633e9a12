"""What stands at masked steps: it may be anything, for values and gradients."""

import contextlib

import keras
import numpy as np
import pytest
from arrays import example, to_numpy
from backend_gradients import gradient_penalty, value_and_gradients
from descriptors import LAYERS, SEQUENCE_LAYERS, randomize
from layer_calls import choices
from recurrence import Problem

import keras_ln
from keras_ln import ops

# A first step, a step between others, a whole row and a last step are padding,
# and the last step of all rows; four rows are left for batch statistics.
MASK = np.ones((6, 5), bool)
MASK[0, ::2] = MASK[1] = MASK[2, -2] = MASK[3, 1] = MASK[:, -1] = False
SHAPE = (*MASK.shape, 2)
RESET = np.random.default_rng(0).random(MASK.shape) < 0.4
VALUES = {"nan": np.nan, "inf": -np.inf, "huge": 1e38}
BOTH_OUTPUTS = {"return_sequences": True, "return_state": True}


def padded(x, value):
    """The inputs with this value, or these, at masked steps."""
    return np.where(MASK[..., None], x, np.asarray(value, x.dtype))


@contextlib.contextmanager
def nan_finder():
    """The framework's, which stops at the first NaN."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.debugging.enable_check_numerics()
        try:
            yield
        finally:
            tf.debugging.disable_check_numerics()
    elif keras.backend.backend() == "jax":
        import jax

        with jax.debug_nans(True):
            yield
    else:
        import torch

        with torch.autograd.set_detect_anomaly(True):
            yield


def check(run, x, finds=True):
    """Fail unless `run(x)` gives what it does where padding holds zeros.

    Bit for bit: it is the same program, of the same numbers. Where nothing is
    NaN, nothing on the way is, where finders can look: `finds`.
    """
    right = run(padded(x, 0.0))
    if finds:
        with nan_finder():
            run(padded(x, 0.0))
    assert abs(right.gradients["x"][MASK]).max() > 1e-3
    for name, value in VALUES.items():
        found = run(padded(x, value))
        for one, other in zip(found.outputs, right.outputs, strict=True):
            assert np.isfinite(one).all(), name
            np.testing.assert_array_equal(one, other, name)
        for source, gradient in right.gradients.items():
            # No gradient comes out where padding was replaced.
            gradient = padded(gradient, 0.0) if source == "x" else gradient
            np.testing.assert_array_equal(
                found.gradients[source], gradient, f"{source}, {name}"
            )


# The implementation, and what a run may have besides.
CASES = {
    "auto": {},
    "fused": {"use_fused": True},
    "loop": {"use_fused": False},
    "unrolled": {"unroll": True},
    "last output": {"return_sequences": False},
    "backwards": {"go_backwards": True, "zero_output_for_mask": True},
    "resets": {"reset": RESET, "given_resets": True},
    "dropout": {"drops": True, "training": True},
    "zoneout": {"training": True},
    "half": {"dtype": "mixed_float16"},
    "portable": {"portable": True},
}
# What TensorFlow and JAX run too: one of each implementation.
EVERYWHERE = {
    *(("LNLSTM", "auto"), ("LNGRU", "fused"), ("LNSimpleRNN", "loop")),
    ("BNLSTM", "dropout"),
}


PROBLEMS = [
    pytest.param(
        row,
        name,
        id=f"{row}-{name}",
        marks=[pytest.mark.every_backend] * ((row.name, name) in EVERYWHERE),
    )
    for row in SEQUENCE_LAYERS
    for name in CASES
    if not (row.batch_statistics and name == "resets")  # which it refuses
]


@pytest.mark.promise("Masked steps may hold anything")
@pytest.mark.parametrize("row, name", PROBLEMS)
def test_recurrent_layers(row, name):
    arguments = {**BOTH_OUTPUTS, "dtype": "float32", **CASES[name]}
    ways = contextlib.nullcontext
    if arguments.pop("portable", False):
        ways = ops.portable
    options = {
        key: arguments.pop(key)
        for key in ("reset", "given_resets", "drops", "training")
        if key in arguments
    }
    if name == "zoneout":
        options["choices"] = choices(row, (*MASK.shape, row.arguments["units"]))
    problem = Problem(
        row, arguments, MASK, given_states=True, shape=SHAPE, **options
    )

    def run(x):
        problem.x = x
        with ways():
            return problem.run(problem.layer())

    # TensorFlow's finder needs ordinary operations, and the op refuses them.
    refuses = name == "fused" and keras.backend.backend() == "tensorflow"
    check(run, problem.x.astype("float32"), finds=not refuses)


@pytest.mark.parametrize("use_fused", [True, False])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_second_derivatives(row, use_fused):
    problem = Problem(
        row, {"return_sequences": True, "use_fused": use_fused}, shape=SHAPE
    )
    right, *others = (
        gradient_penalty(problem.layer(), padded(problem.x, value), MASK)
        for value in (0.0, np.nan, np.inf)
    )
    assert abs(right[0]).max() > 1e-3
    for gradients in others:
        np.testing.assert_equal(gradients, right)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_states_are_no_padding(row):
    """A NaN in the initial state of a row stays in it."""
    problem = Problem(row, BOTH_OUTPUTS, MASK, given_states=True, shape=SHAPE)
    right = problem.run(problem.layer()).outputs
    problem.states[0][1, 0] = np.nan
    found = problem.run(problem.layer()).outputs
    for one, other in zip(found[:2], right[:2], strict=True):
        assert np.isnan(one[1]).any()
        others = np.arange(len(one)) != 1
        np.testing.assert_array_equal(one[others], other[others])


# Whether batch statistics are taken, of layers that have some.
OTHERS = [
    pytest.param(
        row,
        training,
        id=f"{row}-{'training' if training else 'inference'}",
        marks=[pytest.mark.every_backend] * (training == row.batch_statistics),
    )
    for row in LAYERS
    if not row.is_recurrent
    for training in {False, row.batch_statistics}
]


@pytest.mark.promise("Masked steps may hold anything")
@pytest.mark.parametrize("row, training", OTHERS)
def test_other_layers(row, training):
    x = example(*SHAPE)
    cotangent = [example(*MASK.shape, row.arguments.get("units", 2), seed=2)]

    def run(x):
        layer = row.make()
        layer.build(x.shape)
        randomize(layer)
        result = value_and_gradients(
            layer, x, cotangent, mask=MASK, training=training
        )
        for variable in layer.weights:
            assert np.isfinite(to_numpy(variable)).all()
        return result

    check(run, x)


@pytest.mark.every_backend
@pytest.mark.parametrize(
    "row", [row for row in LAYERS if row.batch_statistics], ids=str
)
def test_a_batch_of_padding(row):
    layer, x = row.make(), example(*SHAPE)
    layer.build(x.shape)
    before = [to_numpy(v) for v in layer.weights]
    with nan_finder():
        found = value_and_gradients(
            layer, x, mask=np.zeros_like(MASK), training=True
        )
    for array in (*found.outputs, *found.gradients.values()):
        assert np.isfinite(array).all()
    np.testing.assert_equal([*map(to_numpy, layer.weights)], before)


@pytest.mark.parametrize("row, training", OTHERS)
def test_finite_padding_stays_in_other_layers(row, training):
    """What comes next may not look at the mask."""
    layer, x = row.make(), 1e3 * example(*SHAPE)
    layer.build(x.shape)
    randomize(layer)
    options = {"training": training} if row.batch_statistics else {}
    finite = padded(x, 1e3 * example(*SHAPE, seed=2))
    y = to_numpy(layer(finite, mask=MASK, **options))
    zeros = to_numpy(layer(padded(x, 0.0), mask=MASK, **options))
    np.testing.assert_array_equal(y[MASK], zeros[MASK])
    assert (abs(y - zeros)[~MASK].max(axis=-1) > 1e-2).all()


if keras.backend.backend() == "jax":

    @pytest.mark.every_backend
    @pytest.mark.parametrize(
        ("make", "argument"),
        [
            (keras_ln.LayerNormalization, "mask"),
            (keras_ln.BatchNormalization, "mask"),
            (lambda: keras_ln.WeightNormDense(4), "mask"),
            (lambda: keras_ln.LNLSTM(4), "mask"),
            (lambda: keras_ln.LNLSTM(4), "reset"),
        ],
    )
    def test_a_mask_whose_steps_have_another_name(make, argument):
        """As in Keras' exports; left out it would be another program."""
        import jax

        x, mask = keras.Input((None, 6)), keras.Input((None,), dtype="bool")
        model = keras.Model([x, mask], make()(x, **{argument: mask}))
        arrays = [np.ones((2, 3, 6), "float32"), np.ones((2, 3), bool)]

        def exported(*shapes):
            specs = jax.export.symbolic_args_specs(arrays, [*shapes])
            return jax.export.export(jax.jit(lambda x: model(x)))(specs)

        exported("b, t, 6", "b, t")
        with pytest.raises(ValueError, match="sizes s and t are .*with one na"):
            exported("b, t, 6", "b, s")
        if isinstance(model.layers[-1], keras_ln.LayerNormalization):
            # Another length, which JAX can tell: as ever, it changes nothing.
            exported("b, t, 6", "b, t + 1")
