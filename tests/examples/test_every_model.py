"""Of every script's models: sizes, layers, sites, gains, what the paper set."""

import importlib
import inspect

import numpy as np
import pytest
import scripts
from arrays import to_numpy
from common import cli

# Arguments beside the kind; without any, the sizes of the paper.
SMALL = {
    "attentive_reader": {"vocabulary": 1000},
    "convolutional_networks": {"units": 4, "image_shape": (8, 8, 1)},
    # The paper's would take half a gigabyte.
    "skip_thoughts": {
        **{"units": 7, "word_units": 5, "vocabulary": 20, "length": 3}
    },
}
DENSE = "Dense Activation"
CONVOLUTIONS = "Conv2D {0}Activation Conv2D {0}Activation MaxPooling2D "
CONVOLUTIONS = f"{2 * CONVOLUTIONS}Flatten Dense {{0}}Activation {DENSE}"
READER = 1000 * 240 + 2 * (4 * 240 * 481 + 240) + 241 * 1000
READER += 6 * 240 * 240 + 240  # The attention.
READ_BATCHES = (
    "Embedding InitialState InitialState Dropout GaussianNoise GaussianNoise "
    "BNLSTM[krs] BNLSTM[krs] Attention Dropout Dense"
)
READ = "Embedding Dropout InitialState InitialState {0} {0} Attention "
READ += "Dropout Dense"
# Reading, the mean and the deviation of z, writing: 2 x 2 x 2 seen, 5 x 5 put.
DRAW = 4 * 256 * (8 + 256 + 256 + 1) + 4 * 256 * (100 + 256 + 1)
DRAW += 257 * (2 * 100 + 2 * 5 + 25)
# "About 3.7M": three LSTMs, the window's and the density's layers.
WRITING = sum(4 * 400 * (n + 401) for n in (3 + 57, 3 + 400 + 57, 3 + 400 + 57))
WRITING += 401 * 30 + 1201 * 121
ORDER = 10_000 * 300 + 3 * 1024 * (300 + 1024 + 2) + 1024 * 4097
ORDERS = "Embedding LNGRU[{}] Dense UnitNormalization"
MNIST = 784 * 1000 + 1000 * 1000 + 1000 * 10
PIXELS = 4 * 100 * (2 + 100 + 1) + 101 * 10
THOUGHTS = 3 * (5 + 7) * 3 * 7 + 23 * 5 + 8 * 23
# Of a script's kind: trained weights, layers with the sites of cells, the
# normalisations' gains, and what they start from.
MODELS = {
    "attentive_reader": {
        "none": (READER + 2 * 240, READ.format("LNLSTM[]"), 0, 1),
        "layer": (
            READER + 2 * (4 * 960 + 2 * 240 + 240),
            *(READ.format("LNLSTM[krs]"), 6, 1),
        ),
        "batch": (
            READER + 2 * (2 * 960 + 2 * 240 + 240),
            *(READ_BATCHES, 6, 0.1),
        ),
        "batch-everywhere": (
            READER + 2 * (2 * 960 + 2 * 240) + 7 * 240,
            *(READ_BATCHES, 11, 0.1),
        ),
    },
    "convolutional_networks": {
        "none": (2398 + 56, CONVOLUTIONS.format(""), 0, 1),
        # One gain per unit, one per channel.
        "layer": (
            2398 + 2 * (2 * 8 * 8 * 4 + 2 * 4 * 4 * 8 + 32),
            *(CONVOLUTIONS.format("LayerNormalization "), 5, 1),
        ),
        "layer-channels": (
            2398 + 2 * 56,
            *(CONVOLUTIONS.format("LayerNormalization "), 5, 1),
        ),
        "batch": (
            2398 + 2 * 56,
            *(CONVOLUTIONS.format("BatchNormalization "), 5, 1),
        ),
    },
    "draw_mnist": {
        "none": (DRAW, "Draw", 0, 1),
        "layer": (960_491, "Draw", 2, 1),
    },
    "handwriting_generation": {
        "none": (WRITING, "Window LNLSTM[] LNLSTM[] Dense", 0, 1),
        "layer": (
            WRITING + 3 * (4 * 1600 + 2 * 400),
            *("Window LNLSTM[krs] LNLSTM[krs] Dense", 9, 1),
        ),
    },
    "order_embeddings": {
        "none": (ORDER, ORDERS.format(""), 0, 1),
        # Gain and beta for either product, and no biases.
        "layer": (ORDER + 2 * 3 * 1024, ORDERS.format("kr"), 2, 1),
    },
    "permutation_invariant_mnist": {
        "none": (MNIST + 2010, f"{DENSE} {DENSE} {DENSE}", 0, 1),
        # Layer normalisation stays away from the softmax, batch does not.
        "layer": (
            MNIST + 6010,
            *(f"{2 * 'Dense LayerNormalization Activation '}{DENSE}", 2, 1),
        ),
        "batch": (
            MNIST + 2 * 2010,
            *(" ".join(3 * ["Dense BatchNormalization Activation"]), 3, 1),
        ),
    },
    "sequential_mnist": {
        "none": (PIXELS, f"LNLSTM[] {DENSE}", 0, 1),
        "layer": (PIXELS + 4 * 400 + 200, f"LNLSTM[krs] {DENSE}", 3, 1),
        "batch": (
            PIXELS + 2 * 400 + 200,
            *(f"InitialNoise BNLSTM[krs] {DENSE}", 3, 0.1),
        ),
    },
    "skip_thoughts": {
        # The biases, or gains and shifts, of both sites of three GRUs.
        "none": (
            THOUGHTS + 3 * 2 * 21,
            *(f"Embedding {3 * 'LNGRU[] '}Dense", 0, 1),
        ),
        "layer": (
            THOUGHTS + 3 * 4 * 21,
            *(f"Embedding {3 * 'LNGRU[kr] '}Dense", 6, 1),
        ),
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
    weights, layers, gains, start = MODELS[name][kind]
    build = importlib.import_module(f"{name}_model").build_model
    model = build(kind, **SMALL.get(name, {}))
    found = sum(np.prod(w.shape) for w in model.trainable_weights)
    assert found == weights
    named = [_name(layer) for layer in model.layers]
    assert " ".join(x for x in named if x != "InputLayer") == layers
    assert model.output_shape == SHAPES.get(name, model.output_shape)
    _assert_gains(model, gains, start)


@pytest.mark.parametrize(
    ("name", "kind"), _kinds(["order_embeddings", "skip_thoughts"], True)
)
def test_every_normalisation_starts_from_the_gain(name, kind):
    experiment = cli.find(name)
    flags = ("--smoke", "--norm", kind, "--gain", "0.25")
    plan = scripts.plan(experiment, *flags)
    task = experiment.make_task(plan, experiment.load_data(plan))
    _assert_gains(task.model, MODELS[name][kind][2], 0.25)


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
    plan = vars(scripts.plan(cli.find(name), "--preset", "paper"))
    assert plan | PAPER[name] == plan
    build = importlib.import_module(f"{name}_model").build_model
    for argument in inspect.signature(build).parameters.values():
        if argument.name in PAPER[name]:
            assert argument.default == plan[argument.name], argument.name
    if name == "order_embeddings":
        # The updates of COCO's 113,287 training images.
        assert plan["epochs"] * (113_287 // 128) % 300 == 0


# The flag that a comparison varies, and kinds that have none.
COMPARED = {
    "attentive_reader": ("gain", (0.1, 1.0), ("none",)),
    "permutation_invariant_mnist": ("batch_size", (128, 4), ()),
    "sequential_mnist": ("order", ("natural", "permuted"), ()),
}


@pytest.mark.parametrize("name", COMPARED)
def test_a_comparison_runs_every_kind_with_every_value(name):
    flag, values, without = COMPARED[name]
    experiment = cli.find(name)
    found = scripts.plans(experiment, "--compare")
    assert [(plan.norm, vars(plan)[flag]) for plan in found] == [
        (kind, value)
        for kind in experiment.kinds
        for value in ((None,) if kind in without else values)
    ]
