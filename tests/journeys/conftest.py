"""What all journeys have in common."""

import keras
import pytest


@pytest.fixture(autouse=True)
def traced_once(monkeypatch):
    """The optimizer is built before `fit`.

    TensorFlow traces an update again that has created variables. Those of
    `metrics` are still created in it, so some journeys show that way too.
    """
    if keras.backend.backend() != "tensorflow":
        return
    fit = keras.Model.fit

    def fit_with_built_optimizer(model, *args, **kwargs):
        if model.built and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        return fit(model, *args, **kwargs)

    monkeypatch.setattr(keras.Model, "fit", fit_with_built_optimizer)
