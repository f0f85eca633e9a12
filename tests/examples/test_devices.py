"""Devices that share batches have equal parts of what is held out, too."""

import importlib
import os
from argparse import Namespace

import keras
import numpy as np
import order_embeddings
import order_embeddings_model
import pytest
from common import cli, devices
from common.datasets import books, captions
from common.errors import InputError
from scripts import plan, run_python
from text_files import book


@pytest.fixture(autouse=True)
def seven_devices(few, monkeypatch):
    monkeypatch.setattr(devices, "names", lambda: 7 * ["CPU"])
    monkeypatch.setattr(captions, "SMALL_COUNTS", (28, 40, 40))


def _plan(experiment, *flags):
    args = plan(experiment, "--smoke", "--batch-size", "14", *flags)
    args.distribute = "data-parallel"
    return args


def _held_out(experiment, args, data):
    """Arrays and the sizes of their batches."""
    task = experiment.make_task(args, data)
    batches = [keras.tree.flatten(batch) for batch in task.validation_data]
    for batch in batches:
        assert len({len(part) for part in batch}) == 1
    arrays = [np.concatenate(a) for a in zip(*batches, strict=True)]
    return arrays, [len(batch[0]) for batch in batches]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("permutation_invariant_mnist", [378]),  # of 384
        ("draw_mnist", [126]),  # of 128
        ("handwriting_generation", [28]),  # of 32
        ("order_embeddings", [98, 98]),  # of 200
        ("attentive_reader", [28]),  # of 33
    ],
)
def test_every_batch_can_be_shared(name, sizes):
    experiment = importlib.import_module(name).EXPERIMENT
    args = _plan(experiment)
    data = experiment.load_data(args)
    experiment.check(args, data)
    shared, found = _held_out(experiment, args, data)
    assert found == sizes
    args.distribute = "none"
    alone, _ = _held_out(experiment, args, data)
    for one, two in zip(shared, alone, strict=True):
        np.testing.assert_array_equal(one, two[: sum(sizes)])


@pytest.mark.parametrize(
    ("number", "triples", "sizes"),
    [(1, 7, [4, 3]), (2, 7, [4, 2]), (3, 7, [3, 3]), (4, 3, None)],
)
def test_devices_share_triples(number, triples, sizes, monkeypatch, tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(book())
    experiment = cli.find("skip_thoughts")
    monkeypatch.setattr(devices, "names", lambda: number * ["CPU"])
    monkeypatch.setattr(type(experiment), "evaluation_batch", 4)
    flags = ["--data", str(path), "--batch-size", "12", "--units", "4"]
    args = _plan(experiment, *flags)
    found = books.load(args)._replace(test=np.arange(1, triples + 1))
    data = Namespace(books=found)
    if sizes is None:
        message = "the 3 held-out examples are fewer than the 4 devices"
        with pytest.raises(InputError, match=message):
            experiment.check(args, data)
    else:
        experiment.check(args, data)
        assert _held_out(experiment, args, data)[1] == sizes


def test_every_device_has_wrong_pairs(monkeypatch):
    experiment = order_embeddings.EXPERIMENT
    monkeypatch.setattr(devices, "names", lambda: ["CPU:0", "CPU:1"])
    args = _plan(experiment, "--fold", "20")
    data = experiment.load_data(args)
    args.batch_size, args.evaluate_every = 3, None
    told = "--batch-size 3 leaves a device no wrong .*; expected at least 4"
    with pytest.raises(InputError, match=told):
        experiment.check(args, data)
    for args.batch_size in (4, 6):
        experiment.check(args, data)


def test_sizes_of_sets_and_batches():
    args = _plan(order_embeddings.EXPERIMENT)
    assert devices.held_out(args, 384, 128) == (378, 126)
    assert devices.held_out(args, 7, 128) == (7, 126)
    # No fewer than the devices in a batch.
    assert devices.held_out(args, 384, 5) == (378, 7)
    with pytest.raises(InputError, match="the 6 held-out examples are fewer "):
        devices.held_out(args, 6, 128)
    args.distribute = "none"
    with pytest.raises(InputError, match="^--data: expected held-out .* none$"):
        devices.held_out(args, 0, 128)
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


def test_code_outside_of_a_repository_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    assert devices._commit() == "unknown"


@pytest.mark.full
def test_threads_that_are_asked_for():
    usable = str(len(os.sched_getaffinity(0)))
    code = "from common import devices; print(devices.threads())"
    end = run_python("-c", code, **dict.fromkeys(THREADS.values(), usable))
    assert end.stdout == f"{usable}\n"
