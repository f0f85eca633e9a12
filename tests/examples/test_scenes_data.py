"""Generated scenes: captions, pictures and features."""

import re

import numpy as np
from common.datasets import scenes


def _facts(sentence):
    """What a caption says: (which object, which quality)."""
    parts = re.split("(left of|right of|above|below)", sentence)
    facts = {("place", parts[1])} if len(parts) > 1 else set()
    for which, words in enumerate(parts[::2]):
        facts |= {(which, word) for word in words.split()[1:]}
    return facts


def test_captions_of_a_scene_grow():
    random = np.random.default_rng(0)
    texts, features = scenes.generate(40, random)
    assert len(texts) == 200 and features.shape == (40, scenes.FEATURES)
    assert features.dtype == np.float32 and np.isfinite(features).all()
    for n in range(40):
        facts = [_facts(text) for text in texts[5 * n : 5 * n + 5]]
        for shorter, longer in zip(facts, facts[1:], strict=False):
            assert shorter < longer
        assert len(facts[-1]) == 7
    # Colour, size and the other object come in any order.
    assert {len(text.split()) for text in texts[::5]} >= {3, 5}
    again, same = scenes.generate(40, np.random.default_rng(0))
    assert again == texts
    np.testing.assert_array_equal(same, features)


def test_a_caption_is_true_of_its_picture():
    random = np.random.default_rng(1)
    scene = scenes.Scene(
        scenes.Thing("square", "red", "big"),
        "above",
        scenes.Thing("ring", "blue", "small"),
    )
    assert scenes.describe(scene, random)[-1] == (
        "a big red square above a small blue ring"
    )
    picture = scenes.draw(scene, random)
    red, blue = (
        np.linalg.norm(picture - scenes.COLOURS[name], axis=-1) < 0.3
        for name in ("red", "blue")
    )
    rows = np.arange(scenes.SIDE)[:, None]
    assert rows[np.flatnonzero(red.any(axis=1))].max() < scenes.SIDE / 2
    assert rows[np.flatnonzero(blue.any(axis=1))].min() >= scenes.SIDE / 2 - 1
    assert red.sum() > 2 * blue.sum() > 0
    # The picture, as its features, depends on every fact.
    plain = scenes.features(picture[None])
    for name, values in (
        ("shape", scenes.SHAPES),
        ("colour", scenes.COLOURS),
        ("size", scenes.SIZES),
    ):
        for value in {*values} - {getattr(scene.first, name)}:
            other = scene._replace(first=scene.first._replace(**{name: value}))
            random = np.random.default_rng(1)
            random.permutation(3)
            changed = scenes.features(scenes.draw(other, random)[None])
            assert np.abs(changed - plain).max() > 0.05, value


def test_the_network_is_a_convolution():
    pictures = np.random.default_rng(2).random((3, 24, 24, 3), np.float32)
    found = scenes.features(pictures, chunk=2).reshape(3, 5, 5, 64)
    filters = np.random.default_rng(0).normal(size=(75, 64)) / np.sqrt(75)
    # The means over a field of four by four places.
    expected = np.zeros(64)
    for y in range(4, 8):
        for x in range(12, 16):
            window = pictures[2, y : y + 5, x : x + 5].transpose(2, 0, 1)
            expected += np.maximum(window.reshape(-1) @ filters, 0) / 16
    np.testing.assert_allclose(found[2, 1, 3], expected, rtol=1e-4)
