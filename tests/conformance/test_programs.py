"""Six programs of Keras' guides run with these layers in place of Keras' own.

With the layers of `with_fast_rnn` they give the same numbers as with Keras'.
"""

import types

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import BACKEND
from descriptors import SEQUENCE_LAYERS
from keras.src.backend.common.masking import get_keras_mask
from twins import FAST, OURS, THEIRS, compare, sentences, waves

from keras_ln.layers.rnn import fast

pytestmark = [pytest.mark.full, pytest.mark.every_backend]


def same(found, expected):
    """Two runs of one program, of which one was saved in between."""
    close(found, expected, rtol=1e-4, atol=1e-5)


def reviews(layers, folder=None, padding="post"):
    """The code example bidirectional_lstm_imdb."""
    x, y = sentences(padding)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(12, 8, mask_zero=True),
            keras.layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
            keras.layers.Bidirectional(layers.LSTM(4)),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["accuracy"]
    )
    data = {"validation_data": (x[:8], y[:8]), "class_weight": {0: 1.0, 1: 1.5}}
    history = model.fit(x, y, 8, epochs=5, **data, verbose=0).history
    return {
        "loss": history["loss"],
        "validation": history["val_loss"],
        "accuracy": history["val_accuracy"],
        "predictions": model.predict(x, 8, verbose=0),
        "evaluation": model.evaluate(x, y, 8, verbose=0),
        "one shorter sentence": model(x[:1, :4]),
    }


# TensorFlow and JAX take minutes to compile all of them.
if BACKEND == "torch":

    @pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
    def test_reviews(row):
        steps = {"max_steps": 9} if row.batch_statistics else {}

        def ours(*arguments, **options):
            return row.layer_class(*arguments, **options, **steps)

        pair = (types.SimpleNamespace(LSTM=cls) for cls in (ours, row.twin))
        compare(reviews, *pair)


def tagger(layers, folder=None):
    """A tag for each word: masks through every layer, sample weights."""
    x, _ = sentences("pre")
    words = keras.Input((9,), dtype="int32")
    embedded = keras.layers.Embedding(12, 6, mask_zero=True)(words)
    hidden = keras.layers.Bidirectional(
        layers.LSTM(4, return_sequences=True, dropout=0.1)
    )(embedded)
    hidden = layers.LayerNormalization()(hidden)
    hidden = layers.GRU(4, return_sequences=True)(hidden)
    tags = keras.layers.TimeDistributed(
        keras.layers.Dense(3, activation="softmax")
    )(hidden)
    model = keras.Model(words, tags)
    model.compile(
        keras.optimizers.Adam(0.02),
        "sparse_categorical_crossentropy",
        weighted_metrics=["accuracy"],
    )
    weights = np.where(x == 1, 2.0, 1.0).astype("float32")
    history = model.fit(
        x, x % 3, 8, epochs=5, sample_weight=weights, verbose=0
    ).history
    called = keras.Model(words, [embedded, hidden, tags])(x)
    for tensor in called:
        np.testing.assert_array_equal(to_numpy(get_keras_mask(tensor)), x != 0)
    return {"loss": history["loss"], "predictions": model.predict(x, verbose=0)}


if BACKEND == "tensorflow":
    import tensorflow as tf

    def step_of(model, optimizer):
        """As in the guide writing_a_custom_training_loop_in_tensorflow."""

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            gradients = tape.gradient(loss, model.trainable_weights)
            assert not any(g is None for g in gradients)
            optimizer.apply(gradients, model.trainable_weights)
            return loss

        return step

elif BACKEND == "jax":
    import jax

    def step_of(model, optimizer):
        """As in the guide writing_a_custom_training_loop_in_jax."""
        optimizer.build(model.trainable_variables)
        variables = model.trainable_variables, model.non_trainable_variables
        variables += (optimizer.variables,)

        def loss_of(trainable, non_trainable, x, y):
            found, non_trainable = model.stateless_call(
                trainable, non_trainable, x, training=True
            )
            return keras.ops.mean((found - y) ** 2), non_trainable

        @jax.jit
        def new(state, x, y):
            trainable, non_trainable, of_optimizer = state
            (loss, non_trainable), gradients = jax.value_and_grad(
                loss_of, has_aux=True
            )(trainable, non_trainable, x, y)
            trainable, of_optimizer = optimizer.stateless_apply(
                of_optimizer, gradients, trainable
            )
            return loss, (trainable, non_trainable, of_optimizer)

        def step(x, y):
            loss, state = new([[v.value for v in vs] for vs in variables], x, y)
            for some, values in zip(variables, state, strict=True):
                for variable, value in zip(some, values, strict=True):
                    variable.assign(value)
            return loss

        return step

else:
    import torch

    def step_of(model, _):
        """As in the guide writing_a_custom_training_loop_in_torch."""
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

        def step(x, y):
            x, y = torch.as_tensor(x), torch.as_tensor(y)
            loss = ((model(x, training=True) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        return step


def own_loop(layers, folder=None):
    """A training loop of the user's own, over a ragged last batch."""
    x, y = waves()
    inputs = keras.Input((None, 2))
    hidden = layers.GRU(4, return_sequences=True, dropout=0.1)(inputs)
    hidden = layers.LSTM(4)(layers.BatchNormalization()(hidden))
    hidden = layers.LayerNormalization()(hidden)
    model = keras.Model(inputs, layers.Dense(1)(hidden))
    step = step_of(model, keras.optimizers.Adam(0.02))
    batches = slice(0, 8), slice(8, 16), slice(16, 22)
    losses = [sum(float(step(x[b], y[b])) for b in batches) for _ in range(5)]
    return {"loss": losses, "predictions": model(x)}


def letters(layers, folder=None):
    """Trained on windows, run with batches of one and a kept state."""
    text = np.tile([1, 2, 3, 1, 4, 2], 12)
    x = np.stack([text[k : k + 8] for k in range(60)])
    y = np.stack([text[k + 1 : k + 9] for k in range(60)])

    def build(stateful, **shape):
        return keras.Sequential(
            [
                keras.Input(dtype="int32", **shape),
                keras.layers.Embedding(5, 6),
                layers.LSTM(8, return_sequences=True, stateful=stateful),
                layers.LayerNormalization(),
                layers.GRU(8, return_sequences=True, stateful=stateful),
                keras.layers.Dense(5),
            ]
        )

    model = build(False, shape=(None,))
    model.compile(
        keras.optimizers.Adam(0.02),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history = model.fit(x, y, 16, epochs=4, verbose=0).history
    writer = build(True, batch_shape=(1, 1))
    writer.set_weights(model.get_weights())
    ways = [writer]
    if BACKEND != "jax":  # where Keras 3.15 keeps no states after `predict`
        ways.append(lambda letter: writer.predict(letter, verbose=0))
    for write in ways:
        written = [to_numpy(write(letter.reshape(1, 1))) for letter in x[0]]
        same(np.concatenate(written, axis=1), model(x[:1]))
        for layer in writer.layers:
            if hasattr(layer, "reset_state"):
                layer.reset_state()
    return {"loss": history["loss"], "written": written}


def translation(layers, folder):
    """The code example lstm_seq2seq, its inference models built from a file."""
    numbers = np.random.default_rng(0).integers(1, 6, size=(22, 5))
    source = np.eye(6, dtype="float32")[numbers]
    # Shifted by one, after a start sign.
    target = source[:, ::-1]
    given = np.concatenate([np.eye(6)[[[0]] * 22], target[:, :-1]], axis=1)
    given = given.astype("float32")
    encoder_inputs = keras.Input((None, 6))
    _, h, c = layers.LSTM(8, return_state=True, name="encoder")(encoder_inputs)
    decoder_inputs = keras.Input((None, 6))
    decoder = layers.LSTM(
        8, return_sequences=True, return_state=True, name="decoder"
    )
    hidden, _, _ = decoder(decoder_inputs, initial_state=[h, c])
    dense = keras.layers.Dense(6, activation="softmax", name="dense")
    model = keras.Model([encoder_inputs, decoder_inputs], dense(hidden))
    model.compile(keras.optimizers.Adam(0.02), "categorical_crossentropy")
    history = model.fit(
        [source, given], target, 8, epochs=6, validation_split=0.2, verbose=0
    ).history
    path = folder / f"{layers.LSTM.__name__}.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    _, h, c = loaded.get_layer("encoder").output
    encoder = keras.Model(loaded.input[0], [h, c])
    decoder_inputs = loaded.input[1]
    states = [keras.Input((8,), name="h"), keras.Input((8,), name="c")]
    hidden, *new_states = loaded.get_layer("decoder")(
        decoder_inputs, initial_state=states
    )
    probabilities = loaded.get_layer("dense")(hidden)
    decoder = keras.Model(
        [decoder_inputs, *states], [probabilities, *new_states]
    )
    # Fed with what it should say, step by step, it says what it learnt.
    carried = encoder.predict(source[:3], verbose=0)
    steps = []
    for step in range(5):
        out, *carried = decoder.predict(
            [given[:3, step : step + 1], *carried], verbose=0
        )
        steps.append(out)
    same(np.concatenate(steps, axis=1), model([source[:3], given[:3]]))
    return {"loss": history["loss"], "steps": steps, "states": carried}


def interrupted(layers, folder):
    """Callbacks: backup, best weights, rate, log, early stopping."""
    x, y = sentences()

    def built():
        """What a file has to hold: masks, states, moving statistics."""
        inputs = keras.Input((None,), dtype="int32")
        hidden = keras.layers.Embedding(12, 6, mask_zero=True)(inputs)
        options = {"kernel_regularizer": keras.regularizers.L2(1e-3)}
        options |= {"recurrent_constraint": "max_norm"}
        hidden = keras.layers.Bidirectional(
            layers.LSTM(4, return_sequences=True, **options), merge_mode="sum"
        )(hidden)
        hidden, state = layers.GRU(4, return_state=True)(hidden)
        hidden = keras.layers.concatenate([hidden, state])
        hidden = layers.Dense(4)(layers.BatchNormalization()(hidden))
        outputs = keras.layers.Dense(1, activation="sigmoid")(hidden)
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy")
        return model

    def fit(model, *more):
        options = {"shuffle": False, "verbose": 0}
        callbacks = [*common, *more]
        return model.fit(x, y, 11, epochs=5, callbacks=callbacks, **options)

    class PowerCut(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    folder = folder / layers.LSTM.__name__
    folder.mkdir()
    common = [
        keras.callbacks.BackupAndRestore(folder / "backup"),
        keras.callbacks.ModelCheckpoint(
            folder / "best.keras", monitor="loss", save_best_only=True
        ),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.9 * rate),
        keras.callbacks.CSVLogger(folder / "log.csv", append=True),
        keras.callbacks.TerminateOnNaN(),
    ]
    with pytest.raises(KeyboardInterrupt):
        fit(built(), PowerCut())
    again = built()
    patient = {"patience": 5, "restore_best_weights": True}
    stopping = keras.callbacks.EarlyStopping("loss", **patient)
    losses = fit(again, stopping).history["loss"]
    assert len(losses) == 3  # epochs 3 to 5
    assert len((folder / "log.csv").read_text().splitlines()) == 6
    best = keras.saving.load_model(folder / "best.keras")
    same(best.predict(x), again.predict(x))
    return {"loss": losses, "predictions": best.predict(x)}


PROGRAMS = (tagger, own_loop, letters, translation, interrupted, reviews)


@pytest.mark.promise("programs of Keras' guides run with these layers")
@pytest.mark.parametrize("layers", [OURS, FAST], ids=["ours", "fast"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_program(program, layers, tmp_path, monkeypatch):
    # Without the CPU extension Keras' layers may be as fast.
    monkeypatch.setitem(fast._FASTER_WITHOUT_KERNELS, BACKEND, (True, True))
    compare(lambda some: program(some, tmp_path), layers, THEIRS)
