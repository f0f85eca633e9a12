"""Population statistics of batch normalization, recomputed from data."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_ln._keras import layers_within, own_non_trainable_variables
from keras_ln.engine import arguments
from keras_ln.ops.symbolic import refuse_tf_keras

# No variance is negative, so this marks entries that a batch did not reach.
_UNTOUCHED = -1.0


def reestimate_statistics(
    model: keras.Model,
    dataset: Any,
    batch_size: int | None = None,
    steps: int | None = None,
) -> None:
    """Sets all moving statistics of `model` to their averages over `dataset`.

    Training leaves exponential moving averages, which lag behind the weights
    and favour the last batches. This function runs the trained model over the
    data once and replaces them by the plain averages, over the batches, of the
    batch means and the batch variances. The papers use these averages for the
    final evaluation. Use the same batch size as in training.

    It covers every trainable layer, nested ones included, that has a
    `momentum` and non-trainable weights named `...moving_mean` and
    `...moving_variance`: Keras' and our `BatchNormalization`,
    `RecurrentBatchNorm` and `BNLSTM`. These layers run in training mode (a
    `BNLSTM` without its dropout, and with the expectation of its zoneout); all
    other layers, such as dropout, run in inference mode. An entry's average
    counts the batches that have a finite value for it. An entry that no batch
    reaches, such as a time step beyond the longest sequence, keeps its value,
    and so do frozen layers (`trainable=False`). If a model calls a layer
    several times, its calls are averaged too. A model without batch
    normalization stays unchanged.

    Stateful layers start from states of zero. All other weights and states,
    and the layers' momentum, are restored afterwards; after an error the
    statistics are restored too.

    Args:
        model: a built model.
        dataset: anything `fit` accepts: arrays (or a tuple `(x, y)` of them),
            a `tf.data.Dataset`, a `keras.utils.PyDataset`, a torch
            `DataLoader`, or a generator or other iterable of batches. Of a
            batch `(x, y)` or `(x, y, sample_weight)` only `x` is used.
        batch_size: how many examples of arrays make a batch, 32 by default.
        steps: how many batches to use; None for all. Required if the data
            never end.

    Raises:
        TypeError: if `model` is not a model, or `dataset` has an unknown type.
        ValueError: if the model is not built, there is no batch, or
            `batch_size` is given for data that are already batched.

    Source: Ioffe and Szegedy, "Batch Normalization" (2015), algorithm 2.
    """
    refuse_tf_keras("reestimate_statistics", model)
    if not isinstance(model, keras.Model):
        raise TypeError(
            "Argument `model` must be a keras.Model. "
            f"Received: {type(model).__name__}"
        )
    if not model.built:
        raise ValueError(
            "Argument `model` must be built. Call it on a batch first."
        )
    for name, value in (("batch_size", batch_size), ("steps", steps)):
        if value is not None:
            arguments.check_positive_integer(name, value)
    averages = [_Average(*found) for found in _moving_statistics(model)]
    if not averages:
        return
    number = 0
    with _everything_restored(model, averages):
        for x in itertools.islice(batches(dataset, batch_size), steps):
            for average in averages:
                average.expect()
            model.predict_on_batch(x)
            for average in averages:
                average.add()
            number += 1
        if number == 0:
            raise ValueError("Argument `dataset` must hold at least one batch")
    for average in averages:
        average.assign()


@dataclasses.dataclass
class _Average:
    """The running average of one pair of moving statistics."""

    owner: keras.layers.Layer
    mean: Any  # keras.Variable
    variance: Any  # keras.Variable

    def __post_init__(self):
        self.initial = [_snapshot(v) for v in (self.mean, self.variance)]
        self.sums = [np.zeros(v.shape) for v in self.initial]
        self.count = np.zeros(self.mean.shape)
        # How many calls within a forward pass reached each entry.
        self.calls = keras.Variable(np.zeros(self.mean.shape), trainable=False)

    def expect(self):
        """Marks every entry as not yet reached by the next batch."""
        self.calls.assign(np.zeros(self.mean.shape))
        self._mark()

    def _mark(self):
        self.mean.assign(np.zeros_like(self.initial[0]))
        self.variance.assign(np.full_like(self.initial[1], _UNTOUCHED))

    def add(self):
        """Adds the values of the entries that the batch reached."""
        values = [to_numpy(v) for v in (self.mean, self.variance)]
        reached = (values[1] != _UNTOUCHED) & np.isfinite(values).all(0)
        for total, value in zip(self.sums, values, strict=True):
            total += np.where(reached, value, 0.0)
        self.count += reached

    def take(self):
        """The values so far in a forward pass; marks the entries again."""
        values = [keras.ops.copy(v) for v in (self.mean, self.variance)]
        self._mark()
        return values

    def merge(self, before):
        """Averages the values of the last call and of earlier calls."""
        pair = (self.mean, self.variance)
        after = [keras.ops.copy(v) for v in pair]
        has = keras.ops.cast(after[1] != _UNTOUCHED, self.calls.dtype)
        self.calls.assign(self.calls + has)
        share = keras.ops.cast(
            has / keras.ops.maximum(self.calls, 1.0), after[0].dtype
        )
        for variable, old, new in zip(pair, before, after, strict=True):
            variable.assign(old * (1 - share) + new * share)

    def assign(self):
        """Sets the entries that any batch reached."""
        variables = (self.mean, self.variance)
        for variable, total, old in zip(
            variables, self.sums, self.initial, strict=True
        ):
            mean = total / np.maximum(self.count, 1)
            variable.assign(np.where(self.count > 0, mean, old))


def _moving_statistics(
    model: keras.Model,
) -> Iterator[tuple[keras.layers.Layer, Any, Any]]:
    """`(layer, moving mean, moving variance)` of all trainable layers."""
    for layer in layers_within(model):
        if not (layer.trainable and hasattr(layer, "momentum")):
            continue
        found = {v.name: v for v in own_non_trainable_variables(layer)}
        for name, mean in found.items():
            prefix = name.removesuffix("moving_mean")
            if prefix != name and prefix + "moving_variance" in found:
                yield layer, mean, found[prefix + "moving_variance"]


@contextlib.contextmanager
def _everything_restored(
    model: keras.Model, averages: list[_Average]
) -> Iterator[None]:
    """Inside, layers record plain averages; nothing else changes."""
    owners = {id(a.owner): a.owner for a in averages}.values()
    # Keras does not count the states of stateful layers as variables.
    states = [
        state
        for layer in layers_within(model)
        for state in keras.tree.flatten(getattr(layer, "states", None))
        if isinstance(state, keras.Variable)
    ]
    attributes = {
        **dict.fromkeys(("momentum", "dropout", "recurrent_dropout"), 0.0),
        "zoneout_chooses": False,
    }
    with contextlib.ExitStack() as stack:
        for variable in [*model.variables, *states]:
            stack.callback(variable.assign, _snapshot(variable))
        for state in states:
            state.assign(keras.ops.zeros_like(state.value))
        for owner in owners:
            for name, value in attributes.items():
                if hasattr(owner, name):
                    _set(stack, owner, name, value)
        stack.enter_context(_recording(model, averages))
        _set(stack, model, "steps_per_execution", 1)
        # A function that is compiled already has none of these changes in it;
        # the function that is compiled here has all of them.
        model.make_predict_function(force=True)
        stack.callback(setattr, model, "predict_function", None)
        yield


def _set(
    stack: contextlib.ExitStack, owner: Any, name: str, value: Any
) -> None:
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


@contextlib.contextmanager
def _recording(model: keras.Model, averages: list[_Average]) -> Iterator[None]:
    """Inside, layers with statistics run in training mode.

    With momentum 0 a call leaves its own statistics behind. Several calls
    within one forward pass are averaged.
    """
    layers = layers_within(model)

    def record(layer, call, of_layer):
        @functools.wraps(call)
        def recorded(*args, **kwargs):
            kwargs["training"] = True
            before = [average.take() for average in of_layer]
            outputs = call(*args, **kwargs)
            for average, pair in zip(of_layer, before, strict=True):
                average.merge(pair)
            return outputs

        return recorded

    patched = []
    for layer in layers:
        places = (layer, getattr(layer, "cell", None))
        of_layer = [a for a in averages if any(a.owner is p for p in places)]
        if of_layer:
            patched.append((layer, record(layer, layer.call, of_layer)))
    try:
        for layer, call in patched:
            # Not through __setattr__ of Keras or torch, which would track it.
            object.__setattr__(layer, "call", call)
        yield
    finally:
        for layer, _ in patched:
            layer.__dict__.pop("call", None)


def _snapshot(variable: Any) -> np.ndarray:
    # A copy: on torch the NumPy array shares the variable's memory.
    return np.array(to_numpy(variable))


def batches(dataset: Any, batch_size: int | None) -> Iterator[Any]:
    """The inputs `x` of each batch, as NumPy arrays."""
    x = dataset[0] if isinstance(dataset, tuple) else dataset
    leaves = keras.tree.flatten(x)
    are_arrays = [
        hasattr(leaf, "shape") and hasattr(leaf, "__getitem__")
        for leaf in leaves
    ]
    if leaves and all(are_arrays):
        x = keras.tree.map_structure(to_numpy, x)
        count = 32 if batch_size is None else batch_size
        for start in range(0, len(keras.tree.flatten(x)[0]), count):
            rows = slice(start, start + count)
            yield keras.tree.map_structure(lambda a, rows=rows: a[rows], x)
        return
    if batch_size is not None:
        raise ValueError(
            "Argument `batch_size` is for arrays. Received: "
            f"batch_size={batch_size} and a dataset of type "
            f"{type(dataset).__name__}, which already yields batches."
        )
    for batch in _iterate(dataset):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        yield keras.tree.map_structure(to_numpy, x)


def _iterate(dataset: Any) -> Iterable[Any]:
    if isinstance(dataset, keras.utils.PyDataset):
        # The number of batches may be unknown; islice limits it then.
        number = dataset.num_batches
        indices = itertools.count() if number is None else range(number)
        return (dataset[index] for index in indices)
    if isinstance(dataset, Iterable) and not isinstance(dataset, str):
        return dataset
    raise TypeError(
        "Argument `dataset` must be arrays, a tf.data.Dataset, a PyDataset, "
        "a torch DataLoader, or an iterable of batches. "
        f"Received: {type(dataset).__name__}"
    )


def to_numpy(x: Any) -> np.ndarray:
    """The values of `x`, a tensor of any framework or an array."""
    if keras.ops.is_tensor(x) or isinstance(x, keras.Variable):
        return keras.ops.convert_to_numpy(x)
    return np.asarray(x)
