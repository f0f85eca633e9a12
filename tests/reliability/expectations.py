"""What the layer of a random configuration should give, by the oracles."""

import numpy as np
from reference import norms
from reliability.configurations import ACTIVATIONS


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
