"""Random configurations of every layer, against what they promise."""

import keras
import numpy as np
import pytest
from arrays import close
from descriptors import ROWS, SEQUENCE_LAYERS, named_weights, randomize
from hypothesis import HealthCheck, given, settings
from reference import norms
from reliability.configurations import ACTIVATIONS, configurations

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


def expected(case, weights):
    """The outputs by the oracle; NaN where there is no promise."""
    arguments, x, row = case.arguments, case.x, case.row
    if row.is_cell or row.is_recurrent:
        return _expected_of_sequence(case, weights)
    if row.name in ("WeightNormDense", "WeightNormalization"):
        y = norms.weight_norm_dense(
            x, weights["kernel"], weights["g"], weights.get("bias")
        )
        return [ACTIVATIONS[arguments["activation"]](y)]
    gamma, beta = weights.get("gamma"), weights.get("beta")
    epsilon = arguments["epsilon"]
    if row.name == "LayerNormalization":
        axes = tuple(np.atleast_1d(arguments["axis"]))
        shape = np.ones(x.ndim, int)
        for axis in axes:
            shape[axis] = x.shape[axis]
        gamma, beta = (
            None if p is None else p.reshape(shape) for p in (gamma, beta)
        )
        return [norms.layer_norm(x, gamma, beta, epsilon, axes)]
    if row.name == "RecurrentBatchNorm":
        return [_expected_of_steps(case, weights)]
    axis = arguments["axis"]
    last = np.moveaxis(x, axis, -1)
    rows = last.reshape(-1, last.shape[-1])
    keep = np.ones(len(rows), bool) if case.mask is None else case.mask.ravel()
    if case.training:
        statistics = norms.batch_statistics(rows, keep, arguments["unbiased"])
    else:
        statistics = weights["moving_mean"], weights["moving_variance"]
    y = norms.standardize(rows, *statistics, gamma, beta, epsilon)
    y[~keep] = np.nan
    return [np.moveaxis(y.reshape(last.shape), -1, axis)]


def _expected_of_steps(case, weights):
    arguments, x = case.arguments, case.x
    parameters = weights.get("gamma"), weights.get("beta")
    if case.training:
        y, *_ = norms.batch_norm_sequence(
            x,
            *parameters,
            epsilon=arguments["epsilon"],
            mask=case.mask,
            unbiased=arguments["unbiased"],
            sequence_wise=arguments["sequence_wise"],
        )
    else:
        last = len(weights["moving_mean"]) - 1
        index = np.minimum(np.arange(x.shape[1]), last)
        statistics = [
            weights[f"moving_{kind}"][index] for kind in ("mean", "variance")
        ]
        y = norms.standardize(x, *statistics, *parameters, arguments["epsilon"])
    return y if case.mask is None else np.where(case.mask[..., None], y, np.nan)


def _expected_of_sequence(case, weights):
    arguments, row = case.arguments, case.row
    names = ("epsilon", "normalize", "center")
    if not row.is_cell:
        names += ("go_backwards", "zero_output_for_mask")
        names += ("zoneout", "cell_zoneout")
    options = {name: arguments[name] for name in names if name in arguments}
    for name in ("activation", "recurrent_activation"):
        if name in arguments:
            options[name] = ACTIVATIONS[arguments[name]]
    if row.batch_statistics:
        options["training"] = case.training
    batch, units = case.x.shape[0], arguments["units"]
    states = case.states or [np.zeros((batch, units))] * row.state_count
    x = case.x[:, None] if row.is_cell else case.x
    y, final, *_ = row.oracle(
        weights, x, states[: row.state_count], mask=case.mask, **options
    )
    if row.is_cell:
        counter = [np.ones((batch, 1))] * row.batch_statistics
        return [y[:, 0], *final, *counter]
    outputs = [y if arguments["return_sequences"] else y[:, -1]]
    return outputs + list(final) * arguments["return_state"]
