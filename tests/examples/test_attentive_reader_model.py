"""The attentive reader's layers against equations in NumPy."""

import attentive_reader_model as reader
import keras
import numpy as np
import pytest
from backend_gradients import gradients
from descriptors import randomize
from keras import ops

B, T, U = 5, 7, 4


def _numbers(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def _mask():
    lengths = np.array([7, 3, 1, 6, 4])
    return np.arange(T) < lengths[:, None]


def _layer(normalize=False):
    layer = reader.Attention(U, normalize, momentum=0.75)
    layer.build((B, T, U), (B, U))
    return randomize(layer)


def _array(x):
    return ops.convert_to_numpy(x).astype("float64")


def _attention(layer, d, q, mask, statistics=None):
    """Attention (B, T) and g (B, U) in float64.

    Args:
        layer: has the weights.
        d: (B, T, U).
        q: (B, U).
        mask: (B, T).
        statistics: "batch" or "moving", where the terms are normalised.
    """
    d, q = d.astype("float64"), q.astype("float64")

    def term(name, x):
        dense = layer.terms[name]
        y = x @ _array(dense.kernel)
        if dense.use_bias:
            y = y + _array(dense.bias)
        if statistics is None:
            return y
        norm = layer.norms[name]
        if statistics == "batch":
            rows = y[mask] if y.ndim == 3 else y
            mean, variance = rows.mean(axis=0), rows.var(axis=0)
        else:
            mean = _array(norm.moving_mean).reshape(-1)
            variance = _array(norm.moving_variance).reshape(-1)
        y = (y - mean) / np.sqrt(variance + 1e-5) * _array(norm.gamma)
        return y if norm.beta is None else y + _array(norm.beta)

    sums = term("passage", d) + term("query", q)[:, None]
    match = _array(layer.match.kernel)
    weights, found, mean = np.zeros((B, T)), np.zeros((B, U)), np.zeros((B, U))
    for row in range(B):
        words = np.flatnonzero(mask[row])
        scores = np.array(
            [
                np.tanh(sums[row, t] + (d[row, t] @ match) @ (q[row] @ match))
                @ _array(layer.score.kernel)[:, 0]
                for t in words
            ]
        )
        share = np.exp(scores - scores.max())
        weights[row, words] = share / share.sum()
        for t in words:
            found[row] += weights[row, t] * d[row, t]
            mean[row] += d[row, t] / len(words)
    g = np.tanh(
        term("found", found) + term("query_again", q) + term("mean", mean)
    )
    return weights, g


@pytest.mark.parametrize(
    ("normalize", "training"), [(False, False), (True, False), (True, True)]
)
def test_attention_is_what_the_equations_say(normalize, training):
    layer = _layer(normalize)
    d, q, mask = _numbers(1, B, T, U), _numbers(2, B, U), _mask()
    statistics = ("moving", "batch")[training] if normalize else None
    weights, g = _attention(layer, d, q, mask, statistics)
    found = layer.weights_of(d, q, mask, training=False)
    if not training:
        # float32 against float64, scores of a size of 10.
        np.testing.assert_allclose(_array(found), weights, atol=1e-5)
    np.testing.assert_allclose(
        _array(layer(d, q, mask=mask, training=training)), g, atol=2e-5
    )


@pytest.mark.parametrize("normalize", [False, True])
def test_every_weight_of_the_attention_matters(normalize):
    d, q, mask = _numbers(1, B, T, U), _numbers(2, B, U), _mask()
    layer = _layer(normalize)
    before = _array(layer(d, q, mask=mask, training=False))
    names = [weight.path for weight in layer.weights]
    # 5 terms, their biases or norms, w and B.
    assert len(names) == (5 + 2 + 5 * 3 + 2 if normalize else 5 + 2 + 2)
    for weight in layer.weights:
        value = ops.convert_to_numpy(weight)
        weight.assign(value + 0.5)
        after = _array(layer(d, q, mask=mask, training=False))
        # float32 is right to 1e-6.
        assert np.abs(after - before).max() > 1e-4, weight.path
        weight.assign(value)


@pytest.mark.parametrize("normalize", [False, True])
def test_padding_has_no_weight_and_no_gradient(normalize):
    q, mask = _numbers(2, B, U), _mask()
    cotangent = _numbers(3, B, U)
    results = []
    for seed in (1, 4):
        layer = _layer(normalize)
        padding = 50 * _numbers(seed, B, T, U)
        d = np.where(mask[..., None], _numbers(1, B, T, U), padding)
        weights = layer.weights_of(d, q, mask)
        assert not _array(weights)[~mask].any()
        np.testing.assert_allclose(_array(weights).sum(axis=1), 1, rtol=1e-5)
        results.append(_gradients(layer, d, q, mask, cotangent))
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
    # Those of the passage come first.
    assert not results[0][0][~mask].any()
    assert np.abs(results[0][0][mask]).min() > 0


def _gradients(layer, d, q, mask, cotangent):
    """Gradients of the passage and of the trained weights, and the output."""
    trained = [variable.value for variable in layer.trainable_variables]
    d, cotangent = map(ops.convert_to_tensor, (d, cotangent))

    def g(d):
        return layer(d, q, mask=mask, training=True)

    found = gradients(lambda d, *_: ops.sum(g(d) * cotangent), d, *trained)
    return [_array(x) for x in (*found, g(d))]


def test_a_passage_of_padding_is_not_seen():
    layer, d, q = _layer(), _numbers(1, B, T, U), _numbers(2, B, U)
    mask = _mask()
    mask[2] = False
    assert not _array(layer.weights_of(d, q, mask))[2].any()
    assert np.isfinite(_array(layer(d, q, mask=mask))).all()


# Batch norms have statistics of each step, more for longer passages.
@pytest.mark.parametrize("norm", ["none", "layer"])
def test_longer_padding_changes_nothing(norm):
    words = np.random.default_rng(0).integers(1, 12, (6, 8)).astype("int32")
    words[1, 2:5], words[4, 6:] = 0, 0
    found = []
    for more in (0, 2):
        sizes = {"passage_length": 5 + more, "query_length": 3 + more}
        model = reader.build_model(norm, 4, vocabulary=12, **sizes)
        parts = words[:, :5], words[:, 5:]
        padded = [np.pad(part, ((0, 0), (0, more))) for part in parts]
        found.append(_array(randomize(model)(padded)))
    np.testing.assert_allclose(*found, rtol=1e-3, atol=2e-5)
    assert found[0].std(axis=0).min() > 1e-3


@pytest.mark.parametrize("norm", ["batch-everywhere", "layer"])
def test_a_saved_model_is_the_same(norm, tmp_path):
    model = reader.build_model(
        norm, 4, passage_length=5, query_length=3, vocabulary=12
    )
    randomize(model)
    words = np.random.default_rng(0).integers(0, 12, (6, 8)).astype("int32")
    inputs = [words[:, :5], words[:, 5:]]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(_array(again(inputs)), _array(model(inputs)))
    assert _array(model(inputs)).std(axis=0).min() > 1e-3


def test_passages_and_queries_share_their_vectors():
    model = reader.build_model("none", units=4, vocabulary=9)
    (shared,) = (x for x in model.layers if "embedding" in x.name)
    assert len(shared._inbound_nodes) == 2
