"""Training loops of the user's own, and the switches of `compile`."""

import keras
import numpy as np
import pytest
from journeys.twins import BACKEND, compare, sentences, waves

pytestmark = [pytest.mark.full, pytest.mark.every_backend]


def forecaster(layers, base=keras.Model):
    """A functional model with dropout, norms and moving statistics."""
    inputs = keras.Input((None, 2))
    x = layers.GRU(4, return_sequences=True, dropout=0.1)(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.LSTM(4, recurrent_dropout=0.1)(x)
    x = layers.LayerNormalization()(x)
    return base(inputs, layers.Dense(1)(x))


class Subclass(keras.Model):
    """Layers as attributes, called with masks, states and `training`."""

    def __init__(self, layers):
        super().__init__()
        self.embedding = keras.layers.Embedding(12, 6, mask_zero=True)
        self.encoder = keras.layers.Bidirectional(
            layers.LSTM(3, return_sequences=True)
        )
        self.decoder = layers.GRU(4, return_state=True, dropout=0.2)
        self.norm = layers.LayerNormalization()
        self.head = layers.Dense(1)

    def call(self, inputs, training=False):
        embedded = self.embedding(inputs)
        hidden = self.encoder(embedded, training=training)
        mask = self.embedding.compute_mask(inputs)
        _, state = self.decoder(hidden, mask=mask, training=training)
        return self.head(self.norm(state))


BATCHES = [slice(0, 8), slice(8, 16), slice(16, 22)]

if BACKEND == "tensorflow":
    import tensorflow as tf

    class OwnStep(keras.Model):
        """The guide custom_train_step_in_tensorflow."""

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(y=y, y_pred=y_pred)
            weights = self.trainable_weights
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {metric.name: metric.result() for metric in self.metrics}

    def own_loop(model, x, y, epochs=5, optimizer=None):
        """The guide writing_a_custom_training_loop_in_tensorflow."""
        optimizer = optimizer or keras.optimizers.Adam(0.02)
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            gradients = tape.gradient(loss, model.trainable_weights)
            assert not any(g is None for g in gradients)
            optimizer.apply(gradients, model.trainable_weights)
            return loss

        return [sum(float(step(*one)) for one in data) for _ in range(epochs)]

    def input_gradient(model, x):
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x)
        return tape.gradient(y, x)

elif BACKEND == "jax":
    import jax

    class OwnStep(keras.Model):
        """The guide custom_train_step_in_jax."""

        def own_loss(self, trainable, non_trainable, x, y):
            y_pred, non_trainable = self.stateless_call(
                trainable, non_trainable, x, training=True
            )
            loss = self.compute_loss(x, y, y_pred)
            return loss, (y_pred, non_trainable)

        def train_step(self, state, data):
            trainable, non_trainable, of_optimizer, of_metrics = state
            x, y = data
            (loss, (y_pred, non_trainable)), gradients = jax.value_and_grad(
                self.own_loss, has_aux=True
            )(trainable, non_trainable, x, y)
            trainable, of_optimizer = self.optimizer.stateless_apply(
                of_optimizer, gradients, trainable
            )
            new, logs = [], {}
            for metric in self.metrics:
                mine = of_metrics[len(new) : len(new) + len(metric.variables)]
                if metric.name == "loss":
                    mine = metric.stateless_update_state(mine, loss)
                else:
                    mine = metric.stateless_update_state(mine, y, y_pred)
                logs[metric.name] = metric.stateless_result(mine)
                new += mine
            return logs, (trainable, non_trainable, of_optimizer, new)

    def own_loop(model, x, y, epochs=5, optimizer=None):
        """The guide writing_a_custom_training_loop_in_jax."""
        optimizer = optimizer or keras.optimizers.Adam(0.02)
        model(x[:1])
        optimizer.build(model.trainable_variables)

        def loss_of(trainable, non_trainable, x, y):
            found, non_trainable = model.stateless_call(
                trainable, non_trainable, x, training=True
            )
            return keras.ops.mean((found - y) ** 2), non_trainable

        @jax.jit
        def step(state, x, y):
            trainable, non_trainable, of_optimizer = state
            (loss, non_trainable), gradients = jax.value_and_grad(
                loss_of, has_aux=True
            )(trainable, non_trainable, x, y)
            trainable, of_optimizer = optimizer.stateless_apply(
                of_optimizer, gradients, trainable
            )
            return loss, (trainable, non_trainable, of_optimizer)

        state = [
            [variable.value for variable in variables]
            for variables in (
                model.trainable_variables,
                model.non_trainable_variables,
                optimizer.variables,
            )
        ]
        losses = []
        for _ in range(epochs):
            total = 0.0
            for batch in BATCHES:
                loss, state = step(state, x[batch], y[batch])
                total += float(loss)
            losses.append(total)
        for variables, values in zip(
            (model.trainable_variables, model.non_trainable_variables),
            state,
            strict=False,
        ):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        return losses

    def input_gradient(model, x):
        weights = [v.value for v in model.trainable_variables]
        others = [v.value for v in model.non_trainable_variables]
        return jax.grad(
            lambda x: model.stateless_call(weights, others, x)[0].sum()
        )(x)

else:
    import torch

    class OwnStep(keras.Model):
        """The guide custom_train_step_in_torch."""

        def train_step(self, data):
            x, y = data
            self.zero_grad()
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
            loss.backward()
            weights = list(self.trainable_weights)
            gradients = [weight.value.grad for weight in weights]
            with torch.no_grad():
                self.optimizer.apply(gradients, weights)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {metric.name: metric.result() for metric in self.metrics}

    def own_loop(model, x, y, epochs=5, optimizer=None):
        """The guide writing_a_custom_training_loop_in_torch."""
        model(x[:1])
        optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=0.02)
        data = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(
                torch.as_tensor(x), torch.as_tensor(y)
            ),
            batch_size=8,
        )
        losses = []
        for _ in range(epochs):
            total = 0.0
            for inputs, targets in data:
                loss = torch.nn.functional.mse_loss(
                    model(inputs, training=True), targets
                )
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                total += float(loss.detach())
            losses.append(total)
        return losses

    def input_gradient(model, x):
        x = torch.as_tensor(x).requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x)
        return gradient


def own_step(layers):
    """`fit` with a `train_step` of the user."""
    x, y = waves()
    model = forecaster(layers, OwnStep)
    model.compile(
        keras.optimizers.Adam(0.02),
        "mse",
        metrics=[keras.metrics.MeanAbsoluteError(name="mae")],
    )
    history = model.fit(x, y, 8, epochs=5, verbose=0).history
    return {
        "loss": history["loss"],
        "mae": history["mae"],
        "predictions": model.predict(x, verbose=0),
    }


def test_own_step():
    compare(own_step)


# XLA compiles a subclass as it compiles a functional model.
@pytest.mark.parametrize(
    "model", ["functional", *(["subclass"] if BACKEND == "torch" else [])]
)
def test_own_loop(model):
    def journey(layers):
        if model == "functional":
            network, (x, y) = forecaster(layers), waves()
        else:
            network, (x, y) = Subclass(layers), sentences()
            y = y[:, None]
        losses = own_loop(network, x, y)
        report = {"loss": losses, "predictions": network(x)}
        if model == "functional":
            report["saliency"] = input_gradient(network, x[:4])
        return report

    compare(journey)


def frozen(layers):
    """Transfer: a trained encoder, frozen, under a new head; then thawed."""
    x, y = waves()
    encoder = keras.Sequential(
        [keras.Input((12, 2)), layers.LSTM(4), layers.BatchNormalization()]
    )
    model = keras.Sequential([encoder, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.02), "mse")
    first = model.fit(x, y, 11, epochs=4, verbose=0).history["loss"]
    encoder.trainable = False
    kept = [weight.copy() for weight in encoder.get_weights()]
    second = keras.Sequential([encoder, keras.layers.Dense(2)])
    second.compile(keras.optimizers.Adam(0.02), "mse")
    targets = x[:, -1]
    losses = second.fit(x, targets, 11, epochs=4, verbose=0).history["loss"]
    for weight, before in zip(encoder.get_weights(), kept, strict=True):
        np.testing.assert_array_equal(weight, before)
    encoder.trainable = True
    second.compile(keras.optimizers.Adam(0.02), "mse")
    last = second.fit(x, targets, 11, epochs=4, verbose=0).history["loss"]
    moved = [
        abs(weight - before).max()
        for weight, before in zip(encoder.get_weights(), kept, strict=True)
    ]
    assert min(moved) > 0.0
    return {"loss": first, "head's loss": losses, "thawed loss": last}


def test_frozen():
    compare(frozen)
