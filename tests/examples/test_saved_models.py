"""Models that scripts save are trained on where the scripts are not."""

import keras
import numpy as np
import pytest
from common import cli, training
from scripts import plans, run_python

# Their layers are all in keras_ln.
NAMES = ("convolutional_networks", "skip_thoughts")
# Some layers are in the script's module of its model.
OWN_LAYERS = ("attentive_reader", "order_embeddings")

_GO_ON = """
import importlib, sys
import keras, numpy as np
import keras_ln
folder, *names = sys.argv[1:]
for name in names:
    name, _, module = name.partition(",")
    assert name not in sys.modules and f"{name}_model" not in sys.modules
    if module:
        importlib.import_module(module)
    model = keras.saving.load_model(f"{folder}/{name}.keras")
    with np.load(f"{folder}/{name}.npz") as file:
        arrays = dict(file)
    count = int(arrays.pop("inputs"))
    flat = [*arrays.values()]
    inputs, rest = flat[:count], flat[count:]
    print(int(model.optimizer.iterations))
    for _ in range(3):
        found = model.train_on_batch(
            inputs if len(inputs) > 1 else inputs[0], *rest, return_dict=True
        )
        print(float(found["loss"]))
    assert name not in sys.modules
"""


def save(name, folder):
    """Saves a model after two updates; the losses of three more."""
    experiment = cli.find(name)
    (plan,) = plans(experiment, "--smoke", "--batch-size", "8")
    with training.environment(plan):
        task = experiment.make_task(plan, experiment.load_data(plan))
    model = task.model
    inputs, *rest = next(task.batches(0).as_numpy_iterator())
    inputs = keras.tree.flatten(inputs)

    def losses(count):
        x = inputs if len(inputs) > 1 else inputs[0]
        for _ in range(count):
            found = model.train_on_batch(x, *rest, return_dict=True)
            yield float(found["loss"])

    assert len([*losses(2)]) == 2
    model.save(folder / f"{name}.keras")
    np.savez(folder / f"{name}.npz", *inputs, *rest, inputs=len(inputs))
    return [*losses(3)]


@pytest.mark.full
def test_a_saved_model_goes_on_without_the_script(tmp_path):
    """With its loss and the state of its optimizer: as without a break."""
    expected = [save(name, tmp_path) for name in (*NAMES, *OWN_LAYERS)]
    names = [*NAMES, *(f"{name},{name}_model" for name in OWN_LAYERS)]
    end = run_python("-c", _GO_ON, tmp_path, *names)
    assert end.returncode == 0, end.stderr
    found = np.reshape([*map(float, end.stdout.split())], (len(names), 4))
    np.testing.assert_array_equal(found[:, 0], 2)
    np.testing.assert_allclose(found[:, 1:], expected, rtol=1e-4)
    assert (found[:, 3] < found[:, 1]).all()
