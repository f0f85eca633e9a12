"""Every journey with the layers of with_fast_rnn: Keras' own numbers."""

import types

import pytest
from journeys import (
    test_calls,
    test_classification,
    test_custom_training,
    test_forecasting,
    test_generation,
    test_masks_and_states,
    test_saving,
    test_sequence_to_sequence,
)
from journeys.twins import BACKEND, FAST, THEIRS, compare

from keras_ln.layers.rnn import fast

# With all journeys the runs of XLA would take gigabytes and minutes.
pytestmark = pytest.mark.full

JOURNEYS = [
    test_classification.tagger,
    test_classification.questions,
    test_classification.documents,
    test_classification.transformer,
    test_custom_training.own_step,
    test_custom_training.frozen,
    test_forecasting.buckets,
    test_generation.letters,
    test_generation.multi_step,
    test_generation.nested,
    test_masks_and_states.from_the_masking_guide,
    test_masks_and_states.handed_on,
    test_sequence_to_sequence.attention,
]
# Keras' own stateful layers do not train on torch.
if BACKEND != "torch":
    JOURNEYS.append(test_forecasting.across_batches)
WITH_FILES = [
    test_saving.continued,
    test_saving.interrupted,
    test_sequence_to_sequence.translation,
]


@pytest.fixture(autouse=True)
def without_kernels_too(monkeypatch):
    """Ours runs without the kernels, where Keras' own may be as fast."""
    monkeypatch.setitem(fast._FASTER_WITHOUT_KERNELS, BACKEND, (True, True))


def name_of(journey):
    return journey.__name__


@pytest.mark.parametrize("journey", JOURNEYS, ids=name_of)
def test_journey(journey):
    compare(journey, FAST, THEIRS, same_values=True)


@pytest.mark.parametrize("journey", WITH_FILES, ids=name_of)
def test_journey_with_files(journey, tmp_path):
    compare(
        lambda layers: journey(layers, tmp_path), FAST, THEIRS, same_values=True
    )


@pytest.mark.parametrize("name", test_calls.USES)
def test_one_line(name):
    use = test_calls.USES[name]
    compare(lambda layers: {name: use(layers)}, FAST, THEIRS, same_values=True)


@pytest.mark.every_backend
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("padding", ["pre", "post"])
def test_reviews(kind, padding):
    ours, theirs = (
        types.SimpleNamespace(RNN=vars(of)[kind], padding=padding, rows=24)
        for of in (FAST, THEIRS)
    )
    compare(test_classification.reviews, ours, theirs, same_values=True)
