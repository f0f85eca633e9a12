"""A search over models with our layers, by keras-tuner."""

import keras
import keras_tuner
import numpy as np
import pytest
from journeys.twins import compare, sentences

pytestmark = [pytest.mark.full, pytest.mark.every_backend]


def found(layers, folder, tuner):
    x, y = sentences()

    def build(hp):
        cls = {"lstm": layers.LSTM, "gru": layers.GRU}[
            hp.Choice("cell", ["lstm", "gru"])
        ]
        model = keras.Sequential(
            [
                keras.Input((9,)),
                keras.layers.Embedding(12, 4, mask_zero=True),
                cls(
                    hp.Int("units", 2, 4),
                    dropout=hp.Float("dropout", 0.0, 0.3),
                ),
                keras.layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(
            keras.optimizers.Adam(hp.Choice("rate", [1e-2, 3e-2])),
            "binary_crossentropy",
            metrics=["accuracy"],
        )
        return model

    options = {
        "objective": "val_loss",
        "directory": folder / layers.LSTM.__name__,
        "seed": 1,
    }
    if tuner == "random":
        search = keras_tuner.RandomSearch(build, max_trials=2, **options)
    else:
        search = keras_tuner.Hyperband(build, max_epochs=2, **options)
    search.search(
        x,
        y,
        epochs=2,
        batch_size=11,
        validation_data=(x, y),
        callbacks=[keras.callbacks.EarlyStopping("val_loss", patience=1)],
        verbose=0,
    )
    (best,) = search.get_best_models(1)
    (values,) = search.get_best_hyperparameters(1)
    again = search.hypermodel.build(values)
    again.fit(x, y, 11, verbose=0)
    assert set(values.values) >= {"cell", "units", "dropout", "rate"}
    return {"predictions": np.asarray(best.predict(x, verbose=0))}


@pytest.mark.parametrize("tuner", ["random", "hyperband"])
def test_search(tmp_path, tuner):
    compare(lambda layers: found(layers, tmp_path, tuner))
