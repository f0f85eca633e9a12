"""reestimate_statistics: every kind of data, and what is refused."""

import keras
import numpy as np
import pytest
from statistics_models import F, average, batches_of, check, example, simple

import keras_ln
from keras_ln import reestimate_statistics

BACKEND = keras.backend.backend()


class Batches(keras.utils.PyDataset):
    def __init__(self, x):
        super().__init__()
        self.x = x

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return batches_of(self.x)[index], np.zeros(8)


class Endless(Batches):
    @property
    def num_batches(self):
        return None


def endless(x):
    while True:
        for batch in batches_of(x):
            yield batch, np.zeros(len(batch)), np.ones(len(batch))


def tf_dataset(x):
    import tensorflow as tf

    targets = np.zeros(len(x))
    return tf.data.Dataset.from_tensor_slices((x, targets)).batch(8)


def torch_loader(x):
    import torch

    dataset = torch.utils.data.TensorDataset(torch.tensor(x))
    return torch.utils.data.DataLoader(dataset, batch_size=8)


class Foreign:
    """A tensor of some other framework."""

    def __init__(self, x):
        self.x = x

    def __array__(self, dtype=None, copy=None):
        return np.array(self.x, dtype)


DATASETS = {
    "targets too": (lambda x: (x, np.zeros(len(x))), {"batch_size": 8}),
    "tensor": (keras.ops.convert_to_tensor, {"batch_size": 8}),
    "generator": (lambda x: (b for b in batches_of(x)), {}),
    "endless generator": (endless, {"steps": 3}),
    "other tensors": (lambda x: map(Foreign, batches_of(x)), {}),
    "PyDataset": (Batches, {}),
    "endless PyDataset": (Endless, {"steps": 3}),
}
if BACKEND == "tensorflow":
    DATASETS["tf.data"] = (tf_dataset, {})
if BACKEND == "torch":
    DATASETS["DataLoader"] = (torch_loader, {})


@pytest.mark.every_backend
@pytest.mark.parametrize("kind", DATASETS)
def test_every_kind_of_data(kind):
    model, layer = simple()
    make, options = DATASETS[kind]
    x = example(20)
    reestimate_statistics(model, make(x), **options)
    check(layer, average(batches_of(x)))


@pytest.mark.parametrize("structure", [list, dict])
def test_several_inputs(structure):
    layers = [keras_ln.BatchNormalization() for _ in range(2)]
    inputs = [keras.Input((F,), name=name) for name in ("a", "b")]
    outputs = [f(x) for f, x in zip(layers, inputs, strict=True)]
    model = keras.Model(inputs, outputs)
    arrays = [example(20), example(20, seed=2)]
    data = dict(zip("ab", arrays, strict=True))
    reestimate_statistics(
        model, data if structure is dict else arrays, batch_size=8
    )
    for layer, x in zip(layers, arrays, strict=True):
        check(layer, average(batches_of(x)))


def test_batches_have_their_size():
    with pytest.raises(ValueError, match="`batch_size` is for arrays"):
        reestimate_statistics(simple()[0], Batches(example()), batch_size=4)


@pytest.mark.parametrize(
    "layer_class",
    [keras.layers.BatchNormalization, keras_ln.BatchNormalization],
)
def test_batches_with_nan_do_not_count(layer_class):
    model, layer = simple(layer_class())
    x = example(20)
    bad = x.copy()
    bad[9, 1] = np.nan
    reestimate_statistics(model, bad, batch_size=8)
    expected = average(batches_of(x))
    for value, right in zip(expected, average([x[:8], x[16:]]), strict=True):
        value[1] = right[1]
    check(layer, expected)
