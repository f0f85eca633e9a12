"""The mixture density, the window and the network against their oracles."""

import handwriting_generation as script
import handwriting_generation_model as network
import keras
import numpy as np
import pytest
from arrays import to_numpy
from descriptors import named_weights, randomize
from reference.ln_lstm import lstm
from scipy import stats
from tolerances import FLOAT32_VALUES

COMPONENTS, GAUSSIANS, UNITS = 3, 2, 4


def _tensors(*arrays):
    return [keras.ops.convert_to_tensor(x, "float32") for x in arrays]


def _density(point, outputs):
    """The density of one point, by SciPy."""
    end, rest = outputs[0], np.split(outputs[1:], 6)
    logits, mean_x, mean_y, log_x, log_y, raw = rest
    weights = np.exp(logits) / np.exp(logits).sum()
    total = 0.0
    for m in range(len(weights)):
        s, t, rho = np.exp(log_x[m]), np.exp(log_y[m]), np.tanh(raw[m])
        covariance = [[s * s, rho * s * t], [rho * s * t, t * t]]
        normal = stats.multivariate_normal([mean_x[m], mean_y[m]], covariance)
        total += weights[m] * normal.pdf(point[:2])
    return total * stats.bernoulli(1 / (1 + np.exp(-end))).pmf(point[2])


def test_the_mixture_density():
    random = np.random.default_rng(0)
    points = random.normal(size=(2, 5, 3))
    points[..., 2] = random.random((2, 5)) < 0.5
    outputs = random.normal(size=(2, 5, 1 + 6 * COMPONENTS))
    found = to_numpy(network.mixture_nll(*_tensors(points, outputs)))
    for index in np.ndindex(2, 5):
        expected = -np.log(_density(points[index], outputs[index]))
        assert found[index] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_density_stays_finite_at_the_edge():
    # A correlation whose square rounds to 1, and a far away point.
    outputs = np.zeros((1, 1, 7))
    outputs[..., 6] = 12
    points = [[[1e-3, 1e-3, 1]], [[5, -5, 0]]]
    found = to_numpy(network.mixture_nll(*_tensors(points, outputs)))
    assert np.isfinite(found).all() and found[0, 0] < 0 < found[1, 0]


def _window(alpha, beta, kappa, characters):
    weights = np.zeros(characters)
    for u in range(1, characters + 1):
        for a, b, k in zip(alpha, beta, kappa, strict=True):
            weights[u - 1] += a * np.exp(-b * (k - u) ** 2)
    return weights


def test_the_soft_window():
    random = np.random.default_rng(2)
    alpha, beta = np.exp(random.normal(size=(2, 4, GAUSSIANS)))
    kappa = 6 * random.random((4, GAUSSIANS))
    found = network.window_weights(*_tensors(alpha, beta, kappa), 5)
    expected = [
        _window(*row, 5) for row in zip(alpha, beta, kappa, strict=True)
    ]
    np.testing.assert_allclose(to_numpy(found), expected, **FLOAT32_VALUES)


def _model(norm):
    model = network.build_model(
        norm, UNITS, 6, 5, 7, GAUSSIANS, COMPONENTS, pace=0.3
    )
    return randomize(model)


def _forward(model, points, symbols, norm, changed=()):
    """The network of one line, step by step."""
    window = model.get_layer("window").cell
    cells = [window.lstm, *(model.get_layer(f"lstm_{i}").cell for i in (2, 3))]
    weights = [named_weights(cell) for cell in cells]
    dense = [
        named_weights(window.dense),
        named_weights(model.get_layer("density")),
    ]
    for part, name in changed:
        group = (*weights, *dense)[part]
        noise = np.random.default_rng(4).normal(size=group[name].shape)
        group[name] = group[name] + 0.1 * noise
    text = np.zeros((len(symbols), 7))
    for row, symbol in zip(text, symbols, strict=True):
        if symbol:
            row[symbol - 1] = 1
    sites = () if norm == "none" else ("kernel", "recurrent", "state")
    states = [[np.zeros((1, UNITS))] * 2 for _ in cells]
    kappa, seen = np.zeros(GAUSSIANS), np.zeros(7)
    outputs = []
    for point in points:
        hidden = []
        for i, own in enumerate(weights):
            below = [hidden[-1], seen] if hidden else [seen]
            x = np.concatenate([point, *below])[None, None]
            states[i] = lstm(own, x, states[i], normalize=sites)[1]
            hidden.append(states[i][0][0])
            if i == 0:
                raw = hidden[0] @ dense[0]["kernel"] + dense[0]["bias"]
                alpha, beta, step = np.split(np.exp(raw), 3)
                kappa = kappa + step
                seen = _window(alpha, beta, kappa, len(text)) @ text
        top = np.concatenate(hidden)
        outputs.append(top @ dense[1]["kernel"] + dense[1]["bias"])
    return np.array(outputs)


@pytest.mark.parametrize("norm", script.KINDS)
def test_the_network(norm):
    model = _model(norm)
    random = np.random.default_rng(5)
    points = random.normal(size=(2, 6, 3)).astype("float32")
    symbols = np.int32([[1, 7, 3, 2, 5], [4, 4, 6, 0, 0]])
    found = to_numpy(model([points, symbols]))
    for i in range(2):
        expected = _forward(model, points[i], symbols[i], norm)
        np.testing.assert_allclose(found[i], expected, rtol=1e-3, atol=1e-4)
    # The oracle would notice any weight.
    window = model.get_layer("window").cell
    cell_names = list(named_weights(window.lstm))
    parts = [cell_names] * 3 + [["kernel", "bias"]] * 2
    for part, names in enumerate(parts):
        for name in names:
            other = _forward(
                model, points[1], symbols[1], norm, changed=[(part, name)]
            )
            assert np.abs(other - expected).max() > 1e-3, (part, name)


def test_writing_is_the_network_one_step_at_a_time():
    model = _model("layer")
    symbols = np.int32([[1, 7, 3, 2, 5], [4, 4, 6, 0, 0]])
    drawn, sample_point = [], network.sample_point

    def sample(outputs, bias, random):
        drawn.append(outputs)
        return sample_point(outputs, bias, random)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "sample_point", sample)
        # The window is made to stay, so that no text ends early.
        dense = model.get_layer("window").cell.dense
        dense.bias.assign(np.float32([0, 0, 0, 0, -9, -9]))
        dense.kernel.assign(np.zeros(dense.kernel.shape))
        ways = network.write(model, symbols, 6, 0.5, np.random.default_rng(6))
    assert [way.shape for way in ways] == [(6, 3), (6, 3)]
    points = np.zeros((2, 6, 3), "float32")
    points[:, 1:] = np.stack(ways)[:, :-1]
    expected = to_numpy(model([points, symbols]))
    found = np.array(drawn).reshape(6, 2, -1).swapaxes(0, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_writing_ends_when_the_window_has_passed_the_text():
    model = _model("none")
    dense = model.get_layer("window").cell.dense
    dense.kernel.assign(np.zeros(dense.kernel.shape))
    # One character a step, and a narrow window.
    dense.bias.assign(np.float32([0, 0, 1, 1, 0, 0]))
    symbols = np.int32([[1, 7, 3, 2, 5], [4, 4, 6, 0, 0]])
    ways = network.write(model, symbols, 20, 0.0, np.random.default_rng(7))
    assert [len(way) for way in ways] == [6, 4]
