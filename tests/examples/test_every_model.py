"""Of every script's models: sizes, layers, sites, gains, what the paper set."""

import importlib
import inspect

import numpy as np
import pytest
import scripts
from arrays import to_numpy

# Arguments beside the kind; without any, the sizes of the paper.
SMALL = {
    "attentive_reader": {"vocabulary": 1000},
    "convolutional_networks": {"units": 4, "image_shape": (8, 8, 1)},
    # The paper's would take half a gigabyte.
    "skip_thoughts": {
        **{"units": 7, "word_units": 5, "vocabulary": 20, "length": 3}
    },
}
READER = 1000 * 240 + 2 * (4 * 240 * 481 + 240) + 241 * 1000
READER += 6 * 240 * 240 + 240  # The attention.
PLAIN = "Dropout InitialState InitialState"
NOISY = "InitialState InitialState Dropout GaussianNoise GaussianNoise"
CONVOLUTIONS = 9 * (1 * 4 + 4 * 4 + 4 * 8 + 8 * 8) + 2 * 2 * 8 * 32 + 33 * 10
# Reading, the mean and the deviation of z, writing: 2 x 2 x 2 seen, 5 x 5 put.
DRAW = 4 * 256 * (8 + 256 + 256 + 1) + 4 * 256 * (100 + 256 + 1)
DRAW += 257 * (2 * 100 + 2 * 5 + 25)
# "About 3.7M": three LSTMs, the window's and the density's layers.
WRITING = sum(4 * 400 * (n + 401) for n in (3 + 57, 3 + 400 + 57, 3 + 400 + 57))
WRITING += 401 * 30 + 1201 * 121
ORDER = 10_000 * 300 + 3 * 1024 * (300 + 1024 + 2) + 1024 * 4097
DIGITS = 784 * 1000 + 1000 * 1000 + 1000 * 10
PIXELS = 4 * 100 * (2 + 100 + 1) + 101 * 10
THOUGHTS = 3 * (5 + 7) * 3 * 7 + 23 * 5 + 8 * 23
DENSE, LN, BN = "Dense Activation", "LayerNormalization", "BatchNormalization"
BLOCK = 2 * "Conv2D {0} Activation " + "MaxPooling2D "
# The layers of each script's model, but for what makes its kinds.
LAYERS = {
    "attentive_reader": "Embedding {0} Attention Dropout Dense",
    "convolutional_networks": (
        f"{2 * BLOCK}Flatten Dense {{0}} Activation {DENSE}"
    ),
    "draw_mnist": "Draw {0}",
    "handwriting_generation": "Window {0} {0} Dense",
    "order_embeddings": "Embedding {0} Dense UnitNormalization",
    "permutation_invariant_mnist": 2 * "Dense {0} Activation " + "Dense {1} "
    "Activation",
    "sequential_mnist": f"{{0}} {DENSE}",
    "skip_thoughts": "Embedding {0} {0} {0} Dense",
}
# Of each kind: trained weights, what makes it (of cells their sites too), the
# gains of normalisations, and what they start from.
MODELS = {
    "attentive_reader": {
        "none": (READER + 2 * 240, f"{PLAIN} LNLSTM[] LNLSTM[]", 0, 1),
        "layer": (
            READER + 2 * (4 * 960 + 2 * 240 + 240),
            *(f"{PLAIN} LNLSTM[krs] LNLSTM[krs]", 6, 1),
        ),
        "batch": (
            READER + 2 * (2 * 960 + 2 * 240 + 240),
            *(f"{NOISY} BNLSTM[krs] BNLSTM[krs]", 6, 0.1),
        ),
        "batch-everywhere": (
            READER + 2 * (2 * 960 + 2 * 240) + 7 * 240,
            *(f"{NOISY} BNLSTM[krs] BNLSTM[krs]", 11, 0.1),
        ),
    },
    "convolutional_networks": {
        "none": (CONVOLUTIONS + 56, "", 0, 1),
        # One gain per unit, one per channel.
        "layer": (CONVOLUTIONS + 2 * (2 * 256 + 2 * 128 + 32), LN, 5, 1),
        "layer-channels": (CONVOLUTIONS + 2 * 56, LN, 5, 1),
        "batch": (CONVOLUTIONS + 2 * 56, BN, 5, 1),
    },
    "draw_mnist": {
        "none": (DRAW, "", 0, 1),
        # Gain and shift of both LSTMs' cells.
        "layer": (DRAW + 2 * 2 * 256, "", 2, 1),
    },
    "handwriting_generation": {
        "none": (WRITING, "LNLSTM[]", 0, 1),
        "layer": (WRITING + 3 * (4 * 1600 + 2 * 400), "LNLSTM[krs]", 9, 1),
    },
    "order_embeddings": {
        "none": (ORDER, "LNGRU[]", 0, 1),
        # Gain and beta for either product, and no biases.
        "layer": (ORDER + 2 * 3 * 1024, "LNGRU[kr]", 2, 1),
    },
    "permutation_invariant_mnist": {
        "none": (DIGITS + 2010, "", 0, 1),
        "layer": (DIGITS + 6010, LN, 2, 1),
        "batch": (DIGITS + 2 * 2010, BN, 3, 1),
    },
    "sequential_mnist": {
        "none": (PIXELS, "LNLSTM[]", 0, 1),
        "layer": (PIXELS + 4 * 400 + 200, "LNLSTM[krs]", 3, 1),
        "batch": (PIXELS + 2 * 400 + 200, "InitialNoise BNLSTM[krs]", 3, 0.1),
    },
    "skip_thoughts": {
        # The biases, or gains and shifts, of both sites of three GRUs.
        "none": (THOUGHTS + 3 * 2 * 21, "LNGRU[]", 0, 1),
        "layer": (THOUGHTS + 3 * 4 * 21, "LNGRU[kr]", 6, 1),
    },
}
SHAPES = {
    "convolutional_networks": (None, 10),
    "draw_mnist": (None, 784),
    "skip_thoughts": (None, 8, 23),
}


def _name(layer):
    name, cell = type(layer).__name__, getattr(layer, "cell", None)
    if not hasattr(cell, "normalize"):
        return name
    return f"{name}[{''.join(site[0] for site in cell.normalize)}]"


def _assert_gains(model, count, start):
    gains = [w for w in model.weights if w.name.endswith("gamma")]
    assert len(gains) == count
    for weight in gains:
        np.testing.assert_array_equal(to_numpy(weight), np.float32(start))


def _kinds(full, normalized=False):
    """Scripts and kinds, of which those of some scripts take long."""
    return [
        pytest.param(name, kind, marks=[pytest.mark.full] * (name in full))
        for name, kinds in MODELS.items()
        for kind, (*_, gains, _) in kinds.items()
        if gains or not normalized
    ]


@pytest.mark.parametrize(("name", "kind"), _kinds(["order_embeddings"]))
def test_the_papers_model(name, kind):
    weights, own, gains, start = MODELS[name][kind]
    build = importlib.import_module(f"{name}_model").build_model
    model = build(kind, **SMALL.get(name, {}))
    found = sum(np.prod(w.shape) for w in model.trainable_weights)
    assert found == weights
    named = [_name(layer) for layer in model.layers]
    # Layer normalisation stays away from the softmax, batch does not.
    layers = LAYERS[name].format(own, own if kind == "batch" else "").split()
    assert [x for x in named if x != "InputLayer"] == layers
    assert model.output_shape == SHAPES.get(name, model.output_shape)
    _assert_gains(model, gains, start)


@pytest.mark.parametrize(("name", "kind"), _kinds(MODELS, True))
def test_every_normalisation_starts_from_the_gain(name, kind):
    build = importlib.import_module(f"{name}_model").build_model
    small = {"units": 4} | SMALL.get(name, {})
    _assert_gains(build(kind, **small, gain=0.25), MODELS[name][kind][2], 0.25)


# What --preset paper sets, and the models have by default.
PAPER = {
    "attentive_reader": {
        **{"units": 240, "batch_size": 64, "sentences": 4, "dropout": 0.5},
        "learning_rate": 8e-5,
    },
    "draw_mnist": {"units": 256, "glimpses": 64},
    "handwriting_generation": {"units": 400},
    "order_embeddings": {
        **{"units": 1024, "word_units": 300, "evaluate_every": 300},
        **{"batch_size": 128, "learning_rate": 1e-3, "fold": 1000},
    },
    "skip_thoughts": {
        **{"units": 2400, "word_units": 620, "vocabulary": 20_000},
        **{"length": 30, "batch_size": 64, "learning_rate": 2e-4},
        "evaluate_every": 1_000,
    },
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_settings(name):
    plan = vars(scripts.plans(name, "--preset", "paper")[0])
    assert plan | PAPER[name] == plan
    build = importlib.import_module(f"{name}_model").build_model
    for argument in inspect.signature(build).parameters.values():
        if argument.name in PAPER[name]:
            assert argument.default == plan[argument.name], argument.name
    if name == "order_embeddings":
        # The updates of COCO's 113,287 training images.
        assert plan["epochs"] * (113_287 // 128) % 300 == 0
