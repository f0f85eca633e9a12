"""Devices that share batches have equal parts of what is held out, too."""

import importlib
import os

import keras
import numpy as np
import order_embeddings
import order_embeddings_model
import pytest
from common import devices
from common.datasets import captions, strokes
from common.errors import InputError
from scripts import plans, run_python


@pytest.fixture(autouse=True)
def seven_devices(monkeypatch):
    monkeypatch.setattr(devices, "names", lambda: 7 * ["CPU"])
    monkeypatch.setattr(strokes, "SMALL_TRAINING_TEXTS", 14)
    monkeypatch.setattr(strokes, "SMALL_TEST_TEXTS", 64)
    monkeypatch.setattr(captions, "SMALL_COUNTS", (28, 40, 40))


def _plan(experiment, *flags):
    (plan,) = plans(experiment, "--smoke", "--batch-size", "14", *flags)
    plan.distribute = "data-parallel"
    return plan


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("permutation_invariant_mnist", [378]),  # of 384
        ("draw_mnist", [126]),  # of 128
        ("handwriting_generation", [63]),  # of 64
        ("order_embeddings", [98, 98]),  # of 200
    ],
)
def test_every_batch_can_be_shared(name, sizes):
    experiment = importlib.import_module(name).EXPERIMENT
    plan = _plan(experiment)
    data = experiment.load_data(plan)
    experiment.check(plan, data)
    batches = experiment.make_task(plan, data).validation_data
    found = [{len(part) for part in keras.tree.flatten(b)} for b in batches]
    assert found == [{size} for size in sizes]


def test_sizes_of_sets_and_batches():
    args = _plan(order_embeddings.EXPERIMENT)
    assert devices.held_out(args, 384, 128) == (378, 126)
    assert devices.held_out(args, 7, 128) == (7, 126)
    # No fewer than the devices in a batch.
    assert devices.held_out(args, 384, 5) == (378, 7)
    with pytest.raises(InputError, match="the 6 held-out examples are fewer "):
        devices.held_out(args, 6, 128)
    args.distribute = "none"
    assert devices.held_out(args, 385, 128) == (385, 128)


@pytest.mark.full
def test_a_search_leaves_no_caption_out(monkeypatch):
    args = _plan(order_embeddings.EXPERIMENT, "--units", "4")
    data = order_embeddings.EXPERIMENT.load_data(args)
    model = order_embeddings.EXPERIMENT.make_task(args, data).model
    model = order_embeddings_model.without_loss(model)
    embed = order_embeddings_model.embed
    seen = []
    in_order = captions.Split.in_order

    def spy(split, *sizes):
        batches = in_order(split, *sizes)
        seen.extend(len(images) for _, images in batches)
        return batches

    monkeypatch.setattr(captions.Split, "in_order", spy)
    shared = embed(model, data.dev, args, 100)
    assert seen == [98, 98, 7]
    args.distribute = "none"
    alone = embed(model, data.dev, args, 100)
    assert [len(part) for part in shared] == [200, 40]
    for one, two in zip(shared, alone, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


# Each framework is limited in a way of its own, and says by how much.
THREADS = {"torch": "OMP_NUM_THREADS", "tensorflow": "TF_NUM_INTRAOP_THREADS"}


def test_threads_of_the_tests():
    """conftest.py asks for 1, and no test before may have changed that."""
    usable = len(os.sched_getaffinity(0))
    asked = os.environ.get(THREADS.get(keras.backend.backend(), ""), usable)
    assert devices.threads() == int(asked)


@pytest.mark.full
def test_threads_that_are_asked_for():
    usable = str(len(os.sched_getaffinity(0)))
    code = "from common import devices; print(devices.threads())"
    end = run_python("-c", code, **dict.fromkeys(THREADS.values(), usable))
    assert end.stdout == f"{usable}\n"
