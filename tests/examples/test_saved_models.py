"""Models that scripts save are trained on where the scripts are not."""

import keras
import numpy as np
import pytest
from common import cli, training
from scripts import plans, run_python

# keras_ln has all layers of the others.
OWN_LAYERS = ("attentive_reader", "order_embeddings")
OTHERS = ("convolutional_networks", "skip_thoughts")

_GO_ON = """
import importlib, sys
import keras, numpy as np
import keras_ln
name, module, folder = sys.argv[1:]
if module:
    importlib.import_module(module)
model = keras.saving.load_model(f"{folder}/model.keras")
with np.load(f"{folder}/batch.npz") as file:
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


@pytest.mark.full
@pytest.mark.parametrize("name", [*OWN_LAYERS, *OTHERS])
def test_a_saved_model_goes_on_without_the_script(tmp_path, name):
    """With its loss and the state of its optimizer: as without a break."""
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
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "batch.npz", *inputs, *rest, inputs=len(inputs))
    module = f"{name}_model" if name in OWN_LAYERS else ""
    end = run_python("-c", _GO_ON, name, module, tmp_path)
    assert end.returncode == 0, end.stderr
    updates, *found = map(float, end.stdout.split())
    assert updates == 2
    expected = [*losses(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert found[2] < found[0]
