"""A language model over packed sentences learns what it learns padded."""

import keras
import numpy as np
import pytest
from journeys.twins import BACKEND, to_numpy

import keras_ln
from docs import pages

pytestmark = pytest.mark.full

WORDS = 12


@pytest.fixture(scope="module")
def page():
    """What the code of the page defines, from `pack` on."""
    blocks = pages.pages()["docs/guides/lengths.md"]
    (start,) = (k for k, own in enumerate(blocks) if "def pack(" in own[1])
    names = {"__name__": "packing"}
    for _, code, _ in blocks[start:]:
        exec(code, names)
    return names


def model_of(names, optimizer):
    names["WORDS"] = WORDS
    keras.utils.set_random_seed(20160721)
    model = names["language_model"]()
    model.compile(
        optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def sentences():
    """Each word is the one before it, plus one: something to learn."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        first = rng.integers(3, WORDS - 3)
        yield np.arange(first, rng.integers(first + 1, WORDS))


def arranged(pack, length):
    """Inputs, flags and targets in rows of that length."""
    text = list(sentences())
    inputs, reset, _ = pack([np.append(1, s) for s in text], length)
    targets, _, _ = pack([np.append(s, 2) for s in text], length)
    return inputs, reset, targets


def padded(sequences, length):
    """A sequence in each row, in the place of `pack`."""
    rows = np.zeros((len(sequences), length), int)
    reset = np.zeros((len(sequences), length), bool)
    reset[:, 0] = True
    for row, x in zip(rows, sequences, strict=True):
        row[: len(x)] = x
    return rows, reset, rows > 0


def test_the_same_training(page):
    """Loss and weights after some steps on all sentences at once."""
    found = []
    for pack in (page["pack"], padded):
        inputs, reset, targets = arranged(pack, 20)
        model = model_of(page, keras.optimizers.SGD(0.5))
        given = {"batch_size": len(inputs), "epochs": 3, "verbose": 0}
        losses = model.fit((inputs, reset), targets, **given).history["loss"]
        weights = [to_numpy(weight) for weight in model.trainable_weights]
        found.append((len(inputs), losses, weights))
    (rows, *packed), (count, *alone) = found
    assert rows < count / 2
    np.testing.assert_allclose(packed[0], alone[0], rtol=1e-5)
    for a, b in zip(packed[1], alone[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_it_learns(page, tmp_path):
    """With tf.data and in batches; read again, it goes on predicting."""
    inputs, reset, targets = arranged(page["pack"], 20)
    data = ((inputs, reset), targets, 8)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices(((inputs, reset), targets))
        data = [data.shuffle(1000, seed=0).batch(8)]
    model = model_of(page, keras.optimizers.Adam(0.02))
    losses = model.fit(*data, epochs=40, verbose=0).history["loss"]
    assert losses[-1] < 0.4 * losses[0]
    model.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    sentence = np.array([[1, 4, 5, 6]])
    begins = np.array([[True, False, False, False]])
    logits = model.predict([sentence, begins], verbose=0)
    # From the second word on the next one is known, or the sentence ends.
    for t in (1, 2, 3):
        likely = set(logits[0, t].argsort()[-2:])
        assert likely == {int(sentence[0, t]) + 1, 2}


def test_episodes_of_dictionaries(page):
    """Fields stay beside each other, and each episode is by itself."""
    rng = np.random.default_rng(0)
    episodes = [
        {
            "observations": rng.normal(size=(n, 3)).astype("float32"),
            "rewards": np.ones(n, "float32"),
        }
        for n in rng.integers(5, 50, 20)
    ]
    packed = {
        name: page["pack"]([episode[name] for episode in episodes], length=50)
        for name in episodes[0]
    }
    batch = {name: rows for name, (rows, _, _) in packed.items()}
    _, reset, mask = packed["rewards"]
    layer = keras_ln.LNLSTM(4, return_sequences=True)
    outputs = to_numpy(layer(batch["observations"], reset=reset, mask=mask))
    assert len(outputs) < len(episodes)
    for episode in episodes:
        x = episode["observations"]
        row, step = np.argwhere((batch["observations"] == x[0]).all(-1))[0]
        place = (row, slice(step, step + len(x)))
        for name, field in episode.items():
            np.testing.assert_array_equal(batch[name][place], field)
        alone = to_numpy(layer(x[None]))[0]
        np.testing.assert_allclose(outputs[place], alone, rtol=1e-4, atol=1e-5)
