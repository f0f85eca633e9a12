"""Models that are saved, loaded, copied, exported, and trained on."""

import keras
import numpy as np
import pytest
from arrays import close
from journeys.twins import BACKEND, compare, same, sentences

pytestmark = [pytest.mark.full, pytest.mark.every_backend]


def classifier(layers, **arguments):
    """What a file has to hold: masks, states, dropout, moving statistics."""
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(12, 6, mask_zero=True)(inputs)
    x = keras.layers.Bidirectional(
        layers.LSTM(
            4,
            return_sequences=True,
            kernel_regularizer=keras.regularizers.L2(1e-3),
            recurrent_constraint="max_norm",
            **arguments,
        ),
        merge_mode="sum",
    )(x)
    x = layers.LayerNormalization()(x)
    x, state = layers.GRU(4, return_state=True, **arguments)(x)
    x = keras.layers.concatenate([x, state])
    x = layers.BatchNormalization()(x)
    outputs = keras.layers.Dense(1, activation="sigmoid")(layers.Dense(4)(x))
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy")
    return model


def fit(model, epochs=2, **options):
    x, y = sentences()
    options = {"shuffle": False, "verbose": 0} | options
    return model.fit(x, y, 11, epochs=epochs, **options).history["loss"]


def continued(layers, folder):
    """Saved in the middle, and the same as without a pause."""
    x, _ = sentences()
    keras.utils.set_random_seed(1)
    whole = classifier(layers)
    losses = fit(whole, 4)
    keras.utils.set_random_seed(1)
    model = classifier(layers)
    fit(model)
    path = f"{folder}/{layers.LSTM.__name__}.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert loaded.to_json() == model.to_json()
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
    close(fit(loaded), losses[2:], rtol=1e-3)
    same(loaded.predict(x), whole.predict(x))
    return {"loss": losses, "predictions": whole.predict(x)}


def test_continued(tmp_path):
    compare(lambda layers: continued(layers, tmp_path))


def interrupted(layers, folder):
    """Callbacks: backup, best weights, rate, log, average of the weights."""

    class PowerCut(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    folder = folder / layers.LSTM.__name__
    callbacks = [
        keras.callbacks.BackupAndRestore(folder / "backup"),
        keras.callbacks.ModelCheckpoint(
            folder / "best.keras", monitor="loss", save_best_only=True
        ),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.9 * rate),
        keras.callbacks.CSVLogger(folder / "log.csv", append=True),
        keras.callbacks.TerminateOnNaN(),
    ]
    folder.mkdir()
    model = classifier(layers)
    with pytest.raises(KeyboardInterrupt):
        fit(model, 5, callbacks=[*callbacks, PowerCut()])
    again = classifier(layers)
    losses = fit(
        again,
        5,
        callbacks=[
            *callbacks,
            keras.callbacks.EarlyStopping(
                "loss", patience=5, restore_best_weights=True
            ),
        ],
    )
    assert len(losses) == 3  # epochs 3 to 5
    lines = (folder / "log.csv").read_text().splitlines()
    assert len(lines) == 6
    best = keras.saving.load_model(folder / "best.keras")
    x, _ = sentences()
    same(best.predict(x), again.predict(x))
    return {"loss": losses, "predictions": best.predict(x)}


def test_interrupted(tmp_path):
    compare(lambda layers: interrupted(layers, tmp_path))


def exported(layers, folder):
    """A SavedModel, run by TensorFlow alone and as a layer of Keras."""
    import tensorflow as tf

    x, _ = sentences()
    x = x.astype("int32")
    model = classifier(layers)
    fit(model)
    expected = model.predict(x)
    path = f"{folder}/{layers.LSTM.__name__}"
    model.export(path, verbose=False)
    served = tf.saved_model.load(path)
    for rows in (22, 1):
        for steps in (9, 4):
            part = x[:rows, :steps]
            same(served.serve(part).numpy(), model.predict(part))
    if BACKEND == "tensorflow":
        layer = keras.layers.TFSMLayer(path, call_endpoint="serve")
        same(layer(x), expected)
    return {"predictions": served.serve(x).numpy()}


if BACKEND != "torch":

    def test_exported(tmp_path):
        compare(lambda layers: exported(layers, tmp_path))


def quantised(layers):
    """Dense and Embedding to int8 in a model with recurrent layers."""
    x, _ = sentences()
    model = classifier(layers)
    fit(model)
    model.quantize("int8")
    return {"predictions": model.predict(x)}


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_quantised():
    compare(quantised)
