"""DRAW's attention, divergence and bound against their oracles."""

import draw_mnist as script
import draw_mnist_model as network
import keras
import numpy as np
import pytest
from arrays import to_numpy
from descriptors import named_weights, randomize
from reference import draw as oracle
from scipy import integrate, stats
from tolerances import FLOAT32_VALUES

HEIGHT, WIDTH, LATENT, GLIMPSES = 6, 5, 3, 4


def _tensor(x):
    return keras.ops.convert_to_tensor(x)


def _parameters(count=4, seed=0):
    scale = [0.5, 0.5, 0.7, 0.4, 0.3]
    random = np.random.default_rng(seed)
    return (random.normal(size=(count, 5)) * scale).astype("float32")


@pytest.mark.parametrize("size", [2, 3, 5])
def test_filterbank(size):
    parameters = _parameters()
    found = network.filterbank(parameters, HEIGHT, WIDTH, size)
    expected = [
        oracle.filterbank(np.float64(row), HEIGHT, WIDTH, size)
        for row in parameters
    ]
    for one, two in zip(found, zip(*expected, strict=True), strict=True):
        two = np.stack(two)
        one = to_numpy(one).reshape(two.shape)
        np.testing.assert_allclose(one, two, **FLOAT32_VALUES)
    for filters in found[:2]:
        np.testing.assert_allclose(to_numpy(filters).sum(-1), 1, rtol=1e-5)


def test_far_away_filters_stay_finite():
    parameters = np.float32([[30, -30, -20, 5, 0]])
    for filters in network.filterbank(parameters, HEIGHT, WIDTH, 3)[:2]:
        np.testing.assert_allclose(to_numpy(filters).sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("size", [2, 4])
def test_read_and_write(size):
    parameters = _parameters(seed=1)
    random = np.random.default_rng(2)
    images = random.random((4, HEIGHT, WIDTH)).astype("float32")
    patches = random.normal(size=(4, size * size)).astype("float32")
    filters = network.filterbank(parameters, HEIGHT, WIDTH, size)
    seen = to_numpy(network.read(images, filters))
    put = to_numpy(network.write(patches, filters))
    for i, row in enumerate(np.float64(parameters)):
        np.testing.assert_allclose(
            seen[i],
            oracle.read(images[i], row, size).reshape(-1),
            **FLOAT32_VALUES,
        )
        patch = patches[i].reshape(size, size)
        np.testing.assert_allclose(
            put[i], oracle.write(patch, row, HEIGHT, WIDTH), **FLOAT32_VALUES
        )


def test_divergence_is_the_integral():
    mean, log_deviation = np.float32([[0.7, -1.2]]), np.float32([[0.3, -0.9]])
    expected = 0.0
    for m, s in zip(mean[0], np.exp(log_deviation[0]), strict=True):
        q, p = stats.norm(m, s), stats.norm()
        expected += integrate.quad(
            lambda z, q=q, p=p: q.pdf(z) * (q.logpdf(z) - p.logpdf(z)), -12, 12
        )[0]
    found = to_numpy(network.divergence(_tensor(mean), _tensor(log_deviation)))
    assert found.shape == (1, 1)
    assert float(found[0, 0]) == pytest.approx(expected, rel=1e-5)


def _draw(norm):
    draw = network.Draw(
        glimpses=GLIMPSES,
        seed=3,
        norm=norm,
        units=7,
        latent=LATENT,
        height=HEIGHT,
        width=WIDTH,
        read_size=2,
        write_size=3,
    )
    draw.build((None, HEIGHT * WIDTH))
    randomize(draw.cell)
    return draw


def _parts(draw):
    """Weights by part of the model and name."""
    names = ("encoder", "decoder", "mean", "log_deviation", "read_attention")
    return {
        part: named_weights(getattr(draw.cell, part))
        for part in (*names, "write_attention", "patch")
    }


@pytest.mark.parametrize("norm", script.KINDS)
def test_the_bound(norm):
    draw = _draw(norm)
    random = np.random.default_rng(5)
    images = np.float32(random.random((2, HEIGHT, WIDTH)) < 0.5)
    noise = random.normal(size=(2, GLIMPSES, LATENT)).astype("float32")
    flat = _tensor(images.reshape(2, -1))
    canvas, kl = draw.reconstruct(flat, noise)
    nll = to_numpy(network.pixel_nll(flat, canvas))
    weights = _parts(draw)
    for i in range(2):
        expected = oracle.bound(norm, weights, images[i], noise[i], 2, 3)
        assert nll[i] == pytest.approx(expected[0], rel=1e-4)
        assert to_numpy(kl)[i] == pytest.approx(expected[1], rel=1e-4)
        np.testing.assert_allclose(
            to_numpy(canvas)[i], expected[2].reshape(-1), **FLOAT32_VALUES
        )
    # The oracle would notice any weight.
    for part, group in weights.items():
        for name in group:
            other = group[name] + 0.1 * random.normal(size=group[name].shape)
            changed = weights | {part: group | {name: other}}
            result = oracle.bound(norm, changed, images[1], noise[1], 2, 3)
            assert abs(result[0] + result[1] - sum(expected[:2])) > 1e-5, (
                part,
                name,
            )


def test_the_call_adds_the_divergence_of_its_own_noise():
    draw = _draw("layer")
    images = np.float32(np.random.default_rng(6).random((3, 30)) < 0.5)
    noise = keras.random.normal(
        (3, GLIMPSES, LATENT), seed=keras.random.SeedGenerator(3)
    )
    expected, kl = draw.reconstruct(_tensor(images), noise)
    canvas = draw(images)
    np.testing.assert_allclose(to_numpy(canvas), to_numpy(expected), rtol=1e-5)
    (loss,) = draw.losses
    assert to_numpy(loss) == pytest.approx(to_numpy(kl).mean(), rel=1e-5)
    # The next call draws anew.
    assert np.abs(to_numpy(draw(images)) - to_numpy(canvas)).max() > 1e-3


def test_the_divergence_is_a_metric():
    draw = _draw("layer")
    inputs = keras.Input((HEIGHT * WIDTH,))
    model = network.Autoencoder(inputs, draw(inputs))
    model.compile(
        keras.optimizers.SGD(0.0), network.pixel_nll, run_eagerly=True
    )
    images = np.float32(np.random.default_rng(6).random((4, 30)) < 0.5)
    generator = keras.random.SeedGenerator(3)
    data = {"x": images, "y": images, "batch_size": 2, "verbose": 0}
    history = model.fit(**data, shuffle=False).history
    for found in (
        {key: value[0] for key, value in history.items()},
        model.evaluate(**data, return_dict=True),
    ):
        nll, kl = [], []
        for part in map(_tensor, (images[:2], images[2:])):
            noise = keras.random.normal((2, GLIMPSES, LATENT), seed=generator)
            canvas, divergence = draw.reconstruct(part, noise)
            nll.extend(to_numpy(network.pixel_nll(part, canvas)))
            kl.extend(to_numpy(divergence))
        assert found.keys() == {"loss", "kl"}
        assert found["kl"] == pytest.approx(np.mean(kl), rel=1e-5)
        bound = np.mean(nll) + np.mean(kl)
        assert found["loss"] == pytest.approx(bound, rel=1e-5)
