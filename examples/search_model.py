"""Models of six kinds for the everyday tasks, and their training on JAX.

Every run has a new model with initial weights of its seed. XLA compiles only
for the first model of a shape, and its programs train the others.

Letters: N examples.
"""

import math
from typing import Any

import everyday_model
import jax
import jax.numpy as jnp
import keras
import numpy as np
from common import recurrent
from common.datasets import plain_text
from keras import layers, ops

import keras_ln

LAYERS = {
    "lstm": layers.LSTM,
    "lnlstm": keras_ln.LNLSTM,
    "gru": layers.GRU,
    "lngru": keras_ln.LNGRU,
}
OUTSIDE = "_ln_outside"
# What the two scales multiply.
PLAIN = ("kernel", "recurrent_kernel")
NORMALIZED = ("kernel_gamma", "recurrent_gamma")


def build_model(
    kind: str, task: str, data: Any, units: int, settings: Any
) -> keras.Model:
    """Builds a model of a kind with the settings of a point.

    Args:
        kind: a name of `LAYERS`, with `OUTSIDE` if Keras' normalisation is
            around a layer of Keras.
        task: as in `everyday_model.build_model`.
        data: `sequences.Sequences`.
        units: the size of recurrent layers.
        settings: `input_scale` and `recurrent_scale`, which multiply the
            initial matrices of a layer of Keras, or the initial gains of a
            normalised layer; `forget_steps`, as in `recurrent.biases`.
    """
    cls = LAYERS[kind.removesuffix(OUTSIDE)]

    def layer(**kwargs):
        own = recurrent.biases(cls, units, settings.forget_steps)
        return cls(units, **own, **kwargs)

    model = everyday_model.build_model(
        units=units,
        task=task,
        steps=data.x.shape[1],
        tokens=len(data.tokens) if data.tokens else None,
        outputs=everyday_model.outputs(task, data),
        layer=layer,
        outside=kind.endswith(OUTSIDE),
    )
    scales = (settings.input_scale, settings.recurrent_scale)
    plain = cls.__module__.startswith("keras.")
    for part in model.layers:
        if isinstance(part, layers.RNN):
            names = PLAIN if plain else NORMALIZED
            for weight, scale in zip(names, scales, strict=True):
                variable = getattr(part.cell, weight)
                variable.assign(scale * variable)
    return keras_ln.with_fast_rnn(model) if plain else model


def best_constant(task: str, y: np.ndarray, outputs: int) -> np.ndarray:
    """The outputs of a step (outputs,) that suit all targets, as a model's."""
    if task == "chorales":
        sounds = y[y[..., 0] >= 0]
        share = (sounds.sum(axis=0) + 1) / (len(sounds) + 2)
        return np.log(share / (1 - share))
    if y.dtype.kind == "f":
        return y.mean(axis=0)
    if task == "spelling":
        y = y[y != plain_text.PADDING]
    counts = np.bincount(y.ravel(), minlength=outputs) + 1
    return np.log(counts / counts.sum())


class Program:
    """What XLA compiles for all models with the layers of one of them.

    Args:
        model: the first model.
        task: as in `everyday_model.measured`.
        data: `sequences.Sequences`.
    """

    def __init__(self, model: keras.Model, task: str, data: Any):
        self.model = model
        self.loss, self.metrics = everyday_model.measured(task, data)
        self.optimizer = keras.optimizers.Adam(global_clipnorm=1.0)
        self.optimizer.build(model.trainable_variables)
        names = [variable.name for variable in self.optimizer.variables]
        self.rate = names.index("learning_rate")
        self.epoch = jax.jit(self._epoch)
        self.judge = jax.jit(self._judge)

    def start(self, model: keras.Model) -> tuple[list[Any], ...]:
        """The state of a new model: weights, other variables, moments."""
        parts = (model.trainable_variables, model.non_trainable_variables)
        moments = [ops.zeros_like(v.value) for v in self.optimizer.variables]
        return *([v.value for v in part] for part in parts), moments

    def _judge(self, y, outputs):
        """Loss and error: in percent, or the root of the mean square."""
        loss = ops.mean(self.loss(y, outputs))
        if not self.metrics:
            return loss, ops.sqrt(loss)
        (metric,) = self.metrics
        sums = [ops.zeros_like(v.value) for v in metric.variables]
        sums = metric.stateless_update_state(sums, y, outputs)
        return loss, 100 * (1 - metric.stateless_result(sums))

    def _update(self, train, state, given):
        """The state after a batch of the rows `given`, and its loss."""
        weights, others, moments = state
        rate, rows = given
        x, y = (part[rows] for part in train)

        def forward(weights):
            outputs, changed = self.model.stateless_call(
                weights, others, x, training=True
            )
            return ops.mean(self.loss(y, outputs)), changed

        both = jax.value_and_grad(forward, has_aux=True)(weights)
        (loss, others), gradients = both
        moments = [*moments[: self.rate], rate, *moments[self.rate + 1 :]]
        weights, moments = self.optimizer.stateless_apply(
            moments, gradients, weights
        )
        return ([*weights], [*others], [*moments]), loss

    def _epoch(self, state, rates, batches, train, *judged):
        """The state after a pass, its mean loss, and measures of each part."""

        def update(state, given):
            return self._update(train, state, given)

        state, losses = jax.lax.scan(update, state, (rates, batches))
        weights, others, _ = state
        found = []
        for x, y in judged:
            outputs, _ = self.model.stateless_call(
                weights, others, x, training=False
            )
            found.append(self._judge(y, outputs))
        return state, losses.mean(), found


class Trainer:
    """Trains models of the everyday tasks, one after the other."""

    def __init__(self) -> None:
        self.programs: dict[Any, Program] = {}

    def train(
        self, kind: str, task: str, data: Any, sizes: Any, settings: Any
    ) -> dict[str, Any]:
        """Trains a model and returns what its row says.

        The rate falls from that of `settings` along half a cosine. The measures
        are from the epoch of least validation loss. Before the first epoch, and
        if the loss is no longer finite, they are those of the best constant
        outputs.

        Args:
            kind, task: as in `build_model`.
            data: the task's `sequences.Sequences` for this seed.
            sizes: `epochs`, `batch_size` and `units`.
            settings: as in `build_model`, with `learning_rate`, and `point`,
                which is the seed.
        """
        learnt = data.held_out()
        train, *judged = (
            (jnp.asarray(x), jnp.asarray(y))
            for x, y in (
                (learnt.x, learnt.y),
                (learnt.test_x, learnt.test_y),
                (data.test_x, data.test_y),
            )
        )
        keras.utils.set_random_seed(settings.point)
        model = build_model(kind, task, data, sizes.units, settings)
        shape = (kind, task, *(weight.shape for weight in model.weights))
        if shape not in self.programs:
            self.programs[shape] = Program(model, task, data)
        program = self.programs[shape]
        outputs = model.outputs[0].shape[-1]
        constant = np.float32(best_constant(task, learnt.y, outputs))
        floor = []
        for _, y in judged:
            shape = y.shape if y.dtype.kind == "f" else (*y.shape, outputs)
            same = jnp.broadcast_to(constant, shape)
            floor.append(tuple(map(float, program.judge(y, same))))

        state = program.start(model)
        updates = len(learnt.x) // sizes.batch_size
        steps = np.arange(sizes.epochs * updates) / (sizes.epochs * updates)
        rates = np.float32(
            settings.learning_rate * (1 + np.cos(np.pi * steps)) / 2
        ).reshape(sizes.epochs, updates)
        best, best_epoch, way = floor, 0, []
        for epoch in range(sizes.epochs):
            random = np.random.default_rng((settings.point, epoch))
            batches = random.permutation(len(learnt.x)).astype(np.int32)
            batches = batches[: updates * sizes.batch_size]
            batches = batches.reshape(updates, sizes.batch_size)
            state, loss, found = program.epoch(
                state, rates[epoch], batches, train, *judged
            )
            found = [tuple(map(float, measures)) for measures in found]
            if not all(map(math.isfinite, (float(loss), found[0][0]))):
                best, best_epoch, way = floor, 0, []
                break
            if found[0][0] < best[0][0]:
                best, best_epoch = found, epoch + 1
            way.append(best[1][0])
        (validation, _), (test, error) = best
        return {
            "test_loss": test,
            "test_error": error,
            "validation_loss": validation,
            "updates": best_epoch * updates,
            "on_the_way": float(np.mean(way)) if way else test,
            "diverged": int(not way),
        }
