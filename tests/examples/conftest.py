"""What the tests of comparisons have in common."""

import dataclasses

# Before TensorFlow (2.21), after which Triton of torch 2.13 would crash.
import keras  # noqa: F401
import pytest


@pytest.fixture
def packaged(tmp_path_factory, monkeypatch):
    """Small packages of data in place of those that may be installed."""
    import packaged_data

    folder = packaged_data.write(tmp_path_factory.mktemp("packages"))
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def trained():
    """The plans that were trained, with the images that they saw."""
    return []


@pytest.fixture
def uncompiled(monkeypatch):
    """What XLA would need for a model is more than these train."""
    from common import training

    monkeypatch.setattr(training, "speed", lambda updates: {})


@pytest.fixture
def experiment(trained, monkeypatch):
    """A comparison whose runs take no time."""
    import untrained_comparisons
    from common import claims, plotting

    # Of every run of a grid; that of a comparison is drawn.
    monkeypatch.setattr(plotting, "curves", lambda *args: None)
    found = untrained_comparisons.experiment_of(trained)
    table = dataclasses.replace(claims.OF[found.name], claims=())
    monkeypatch.setitem(claims.OF, found.name, table)
    return found
