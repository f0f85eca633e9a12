"""Files that the examples read, in the formats in which data are published."""

import numpy as np


def book():
    """Sentences of two lengths, whose neighbours can be foreseen."""
    random = np.random.default_rng(0)
    words = "a the story warm dull of letter man woman reading".split()
    return "\n".join(
        " ".join(random.choice(words, 1 + number % 2)) + "."
        for number in range(170)
    )


def write_captions(folder, counts):
    """The files as Vendrov et al. published them."""
    random = np.random.default_rng(0)
    words = np.array("a red blue cat dog runs sits on the old sofa".split())
    for split, count in counts.items():
        features = random.random((count, 6), np.float32)
        np.save(folder / f"{split}_ims.npy", features)
        lines = [
            " ".join(
                words[random.integers(len(words), size=random.integers(2, 9))]
            )
            for _ in range(5 * count)
        ]
        (folder / f"{split}_caps.txt").write_text("\n".join([*lines, ""]))
