"""The network of section 6.3: sizes, loss, vectors, and its saved file."""

import keras
import numpy as np
import pytest
import skip_thoughts as script
import skip_thoughts_model as parts
from common.datasets import plain_text
from descriptors import named_weights
from reference.ln_gru import gru

UNITS, WORD_UNITS, LENGTH = 5, 4, 3
WORDS = (*plain_text.MARKS, "a", "rose", "is", ".")


def _model(norm="layer", **kwargs):
    """A small model with random weights."""
    options = {
        "units": UNITS,
        "word_units": WORD_UNITS,
        "vocabulary": len(WORDS) - len(plain_text.MARKS),
        "length": LENGTH,
    } | kwargs
    model = parts.build_model(norm, **options)
    random = np.random.default_rng(7)
    for weight in model.weights:
        weight.assign(0.5 * random.normal(size=weight.shape))
    return model


def _triples(count=6, steps=LENGTH, seed=3):
    random = np.random.default_rng(seed)

    def sentences(width):
        rows = random.integers(1, len(WORDS), (count, width))
        lengths = random.integers(1, width + 1, (count, 1))
        return np.where(np.arange(width) < lengths, rows, 0).astype("int32")

    before, after = sentences(LENGTH + 1), sentences(LENGTH + 1)
    current = random.integers(1, len(WORDS), (count, steps)).astype("int32")
    shifted = [np.pad(x[:, :-1], ((0, 0), (1, 0))) for x in (before, after)]
    targets = np.concatenate([before, after], axis=1)
    return [current, *shifted], targets, np.float32(targets != 0)


def _weights(model, layer):
    return [np.float64(w) for w in model.get_layer(layer).get_weights()]


def _gru(model, layer, x, h, norm):
    """Hidden states (T, U) of one sequence, from h."""
    weights = named_weights(model.get_layer(layer))
    sites = ("kernel", "recurrent") if norm == "layer" else ()
    return gru(weights, x[None], [h[None]], normalize=sites)[0][0]


def _outputs(model, inputs):
    return keras.ops.convert_to_numpy(model(inputs))


def _logits(model, inputs, norm):
    (table,) = _weights(model, "word_vectors")
    kernel, bias = _weights(model, "output")
    found = []
    for current, before, after in zip(*inputs, strict=True):
        steps = table[current[current != 0]]
        start = np.zeros(UNITS)
        thought = _gru(model, "encoder", steps, start, norm)[-1]
        hidden = []
        for name, words in (("before", before), ("after", after)):
            decoder = f"decoder_{name}"
            hidden += [*_gru(model, decoder, table[words], thought, norm)]
        found.append([h @ kernel + bias for h in hidden])
    return np.array(found)


@pytest.mark.parametrize("norm", script.KINDS)
def test_logits(norm):
    model = _model(norm)
    inputs, _, _ = _triples()
    found = _outputs(model, inputs)
    assert found.shape == (6, 2 * LENGTH + 2, len(WORDS))
    expected = _logits(model, inputs, norm)
    # Float32 over seven steps of gates.
    np.testing.assert_allclose(found, expected, atol=2e-5)
    # All inputs matter: the sentence to every word, the words to later ones.
    for place in range(3):
        changed = [x.copy() for x in inputs]
        changed[place][:, -2] = changed[place][:, -2] % 6 + 1
        other = _outputs(model, changed)
        differs = np.abs(other - found).max(axis=2) > 1e-4
        assert differs.any()
        if place:
            mine = slice((place - 1) * 4, place * 4)
            # The words before the change, and the other sentence, do not.
            assert not differs[:, mine][:, : LENGTH - 1].any()
            differs[:, mine] = False
            assert not differs.any()


@pytest.mark.parametrize("norm", script.KINDS)
def test_the_matrix_of_every_gate_is_orthogonal(norm):
    model = parts.build_model(norm, 7, 5, 20, 3)
    for name in ("encoder", "decoder_before", "decoder_after"):
        kernel = model.get_layer(name).cell.recurrent_kernel
        for gate in np.split(keras.ops.convert_to_numpy(kernel), 3, axis=1):
            np.testing.assert_allclose(gate.T @ gate, np.eye(7), atol=1e-5)


def test_padding_does_not_change_the_vector_of_a_sentence():
    model = _model()
    inputs, _, _ = _triples()
    padded = [np.pad(inputs[0], ((0, 0), (0, 4))), *inputs[1:]]
    expected = _outputs(model, inputs)
    np.testing.assert_allclose(_outputs(model, padded), expected, atol=1e-6)
    padded[0][:, -1] = 3
    assert np.abs(_outputs(model, padded) - expected).max() > 0.01


def _nll(logits, targets):
    """Nats per word and their number, over all but padding."""
    total = count = 0
    for row, words in zip(logits, targets, strict=True):
        for scores, word in zip(row, words, strict=True):
            if word:
                total += np.log(np.exp(scores).sum()) - scores[word]
                count += 1
    return total, count


@pytest.mark.full
def test_loss_leaves_out_padding():
    model = _model()
    logits = {"from_logits": True}
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="sum", **logits)
    nll = keras.metrics.SparseCategoricalCrossentropy("nll", **logits)
    model.compile(loss=loss, weighted_metrics=[nll])
    inputs, targets, weights = _triples()
    total, count = _nll(_logits(model, inputs, "layer"), targets)
    assert 0 < count < targets.size  # There is padding.
    found = model.evaluate(
        inputs, targets, sample_weight=weights, verbose=0, return_dict=True
    )
    # The loss is the sum over a batch, as in the authors' code.
    assert found["loss"] == pytest.approx(total, rel=1e-5)
    assert found["nll"] == pytest.approx(total / count, rel=1e-5)


def test_vectors_of_sentences():
    model = _model()
    encode = parts.SentenceEncoder(model, WORDS)
    sentences = ["A rose.", "is", "a rose is a rose is a rose is a thorn"]
    found = encode(sentences)
    assert found.shape == (3, UNITS) and found.dtype == np.float32
    numbers = [[3, 4, 6, 1], [5, 1], [3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 2, 1]]
    (table,) = _weights(model, "word_vectors")
    for vector, own in zip(found, numbers, strict=True):
        start = np.zeros(UNITS)
        expected = _gru(model, "encoder", table[own], start, "layer")[-1]
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    # More than a batch, in any order.
    many = (sentences * 50)[::-1]
    np.testing.assert_allclose(encode(many), np.tile(found[::-1], (50, 1)))
    # Further words, with vectors of their own.
    table = np.concatenate([table, [np.full(WORD_UNITS, 0.3)]], dtype="float32")
    wider = parts.SentenceEncoder(model, (*WORDS, "thorn"), table)(sentences)
    np.testing.assert_array_equal(wider[:2], found[:2])
    assert np.abs(wider[2] - found[2]).max() > 0.01
