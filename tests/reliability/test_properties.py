"""What holds for every layer, whatever its arguments, inputs, masks, weights.

hypothesis looks for a configuration that breaks one of the promises below:
some hundred in the ordinary suite, the same ones each time, and thousands of
new ones in the slow one.
"""

import dataclasses

import keras
import numpy as np
import pytest
from arrays import close
from descriptors import (
    BY_NAME,
    ROWS,
    SEQUENCE_LAYERS,
    named_weights,
    randomize,
)
from hypothesis import HealthCheck, given, settings
from reliability.configurations import configurations
from reliability.expectations import expected

BACKEND = keras.backend.backend()
# Where XLA compiles each new shape, a configuration is not cheap.
FEW = {"tensorflow": 10, "jax": 3, "torch": 15}[BACKEND]
MANY = {"tensorflow": 150, "jax": 30, "torch": 150}[BACKEND]
MANY_FUSED = {"tensorflow": 30, "jax": 10, "torch": 150}[BACKEND]
FUSED = {"tensorflow": (False,), "jax": (False,), "torch": (False, "auto")}

# Rounding, 1e-16, times the 1 / sqrt(1e-6) of a norm of nearly equal numbers
# in each of four steps is the worst there is; what is wrong is wrong by more.
CLOSE = {"rtol": 1e-6, "atol": 1e-6}

# A batch of one is among the cases; that there is a warning is no news.
pytestmark = pytest.mark.filterwarnings("ignore:.*trains on one element")


def search(row, check, count, fused, **options):
    """Fails with the smallest configuration found that breaks a promise."""

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        **options,
    )
    @given(configurations(row, fused))
    def run(configuration):
        check(configuration)

    run()


def check_all(case):
    """Every promise, for one configuration."""
    layer = randomize(case.layer(), case.seed)
    before = named_weights(layer)
    outputs = case.call(layer)
    check_shapes(case, outputs)
    outputs = [keras.ops.convert_to_numpy(y) for y in outputs]
    if case.dtype == "float64":
        for found, right in zip(outputs, expected(case, before), strict=True):
            counted = ~np.isnan(right)
            close(found[counted], right[counted], **CLOSE)
    elif not _may_grow(case):
        assert all(np.isfinite(y.astype("float64")).all() for y in outputs)
    check_again(case, before, outputs)


def check_shapes(case, outputs):
    """As Keras' layers, in the compute dtype."""
    batch, units = case.x.shape[0], case.arguments.get("units")
    if case.row.is_cell:
        shapes = [(batch, units)] * (1 + case.row.state_count)
        shapes += [(batch, 1)] * case.row.batch_statistics
    elif case.row.is_recurrent:
        shapes = [(batch, units)]
        if case.arguments["return_sequences"]:
            shapes = [(batch, case.x.shape[1], units)]
        if case.arguments["return_state"]:
            shapes += [(batch, units)] * case.row.state_count
    else:
        shapes = [case.x.shape[:-1] + (units or case.x.shape[-1],)]
    assert [tuple(y.shape) for y in outputs] == shapes
    dtypes = [keras.backend.standardize_dtype(y.dtype) for y in outputs]
    assert set(dtypes[: 1 + case.row.state_count]) == {case.compute_dtype}


def check_again(case, weights, outputs):
    """A layer from the configuration, with the weights, is the same layer.

    And what the mask leaves out changes nothing that it keeps.
    """
    layer = case.row.layer_class.from_config(case.layer().get_config())
    layer.build(case.x.shape)
    for variable in layer.weights:
        variable.assign(weights[variable.name])
    x, keep = case.x, True
    if case.mask is not None:
        axis = case.arguments.get("axis", -1)
        keep = np.expand_dims(case.mask, axis)
        x = np.where(keep, x, 7.0 - 3.0 * x)
    if case.row.is_recurrent:
        keep = True
    for one, two in zip(outputs, case.call(layer, x), strict=True):
        two = np.where(keep, keras.ops.convert_to_numpy(two), 0.0)
        np.testing.assert_array_equal(np.where(keep, one, 0.0), two)


def _may_grow(case):
    """Whether values may leave the range of float16 in four steps."""
    names = ("activation", "recurrent_activation")
    grows = {"linear", "relu"}
    return grows & {case.arguments.get(name) for name in names}


@pytest.mark.promise("random configurations")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_some_configurations(row):
    search(row, check_all, FEW, FUSED[BACKEND], derandomize=True)


@pytest.mark.promise("random configurations")
@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_many_configurations(row):
    search(row, check_all, MANY, (False,))


@pytest.mark.promise("random configurations")
@pytest.mark.slow
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_many_configurations_of_the_fused_ops(row):
    search(row, check_all, MANY_FUSED, ("auto",))


FAULTS = {
    "epsilon": lambda o: o | {"epsilon": 2.0 * o["epsilon"]},
    "direction": lambda o: o | {"go_backwards": not o["go_backwards"]},
    "mask": lambda o: o | {"mask": None},
    "zeros": lambda o: o | {"zero_output_for_mask": False},
    "sites": lambda o: o | {"normalize": o["normalize"][:1]},
    "activation": lambda o: o | {"activation": np.arctan},
}


def faulty(oracle, fault):
    return lambda *arguments, **options: oracle(
        *arguments, **FAULTS[fault](options)
    )


def test_the_search_would_find_faults():
    row = BY_NAME["LNGRU"]
    found = dict.fromkeys(FAULTS, 0)

    def check(case):
        if case.dtype != "float64":
            return
        weights = named_weights(randomize(case.layer(), case.seed))
        right = expected(case, weights)
        for fault in FAULTS:
            oracle = faulty(row.oracle, fault)
            other = dataclasses.replace(row, oracle=oracle)
            other = dataclasses.replace(case, row=other)
            found[fault] += any(
                abs(a - b).max() > 1e-5
                for a, b in zip(right, expected(other, weights), strict=True)
            )

    search(row, check, 200, (False,), derandomize=True)
    assert min(found.values()) > 0, found
