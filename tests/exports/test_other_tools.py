"""Code of docs/guides/other_tools.md, with the tools that it is about.

tests/peers/run.py installs them and starts these tests.
"""

import os
import subprocess
from pathlib import Path

import pytest
from docs.alone import MODEL

from docs import pages

pytestmark = pytest.mark.peers

PAGE = "docs/guides/other_tools.md"
# What stands after each snippet, by its first line.
AFTER = {
    "import joblib": """
assert len(predictions) == 2
for rows, found in zip(parts, predictions):
    np.testing.assert_allclose(found, predict(model, rows), rtol=1e-6)
""",
    "import mlflow": """
np.save("wanted.npy", model.predict(x, verbose=0))
assert "keras-ln" in open("served/requirements.txt").read().split()
""",
    "import optuna": """
again = build_model(optuna.trial.FixedTrial(study.best_params))
assert [type(l) for l in again.layers] == [type(l) for l in best.layers]
assert again.count_params() == best.count_params()
import keras_tuner
tuned = keras_tuner.HyperParameters()
tuned.values = study.best_params
layer = tuning.choose_recurrent(tuned, units=(8, 16))
assert type(layer) is type(best.layers[0])
assert layer.units == best.layers[0].units
""",
    "from optuna.trial import FixedTrial": """
assert best["recurrent_units"] in (8, 16) and not results.errors
""",
    "import lightning": """
rows = torch.from_numpy(x)
assert torch.equal(again.model(rows), trainer.lightning_module.model(rows))
""",
}
BEFORE = {
    "import joblib": "model = build_model()\nparts = (x[:2], x[2:])\n",
    "import mlflow": "model = build_model()\n",
    "from optuna.trial import FixedTrial": """
import ray
ray.init(num_cpus=1, include_dashboard=False)
""",
    "import lightning": """
import torch
data = torch.utils.data.TensorDataset(*map(torch.from_numpy, (x, y)))
data = torch.utils.data.DataLoader(data, batch_size=2)
""",
}


def run(code, folder, status=0, **environment):
    """What a process prints that runs in the folder."""
    tools = os.environ.get("KERAS_LN_PEERS")
    if tools is None:
        pytest.fail("Start these tests with python tests/peers/run.py.")
    (folder / "program.py").write_text(code)
    done = subprocess.run(
        [Path(tools, "tools", "bin", "python"), "program.py"],
        cwd=folder,
        env=os.environ | {"KERAS_BACKEND": "torch"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


@pytest.mark.promise("models run in the [other tools]")
@pytest.mark.parametrize("first", AFTER)
def test_snippets(first, tmp_path):
    code = pages.elsewhere()[PAGE, first]
    run(MODEL + BEFORE.get(first, "") + code + AFTER[first], tmp_path)
    if first == "import mlflow":
        served = """
import mlflow
import numpy as np
model = mlflow.pyfunc.load_model("served")
found = model.predict(np.ones((4, 5, 3), "float32"))
np.testing.assert_allclose(found, np.load("wanted.npy"), rtol=1e-6)
"""
        run(served, tmp_path)


LIMIT = "Could not locate class 'LNLSTM'"


def test_a_pickle_brings_no_import(tmp_path):
    save = 'import pickle\npickle.dump(build_model(), open("model", "wb"))\n'
    load = 'import pickle\npickle.load(open("model", "rb"))\n'
    run(MODEL + save, tmp_path)
    run("import keras_ln\n" + load, tmp_path)
    assert LIMIT in run(load, tmp_path, status=1)


def test_the_flavour_of_mlflow_does_not_name_the_package(tmp_path):
    save = """
import mlflow
mlflow.keras.save_model(build_model(), "served")
"""
    run(MODEL + save, tmp_path)
    requirements = (tmp_path / "served" / "requirements.txt").read_text()
    assert "keras==" in requirements and "keras-ln" not in requirements
    load = 'import mlflow\nmlflow.keras.load_model("served")\n'
    assert LIMIT in run(load, tmp_path, status=1)
    run("import keras_ln\n" + load, tmp_path)


FIT = """
import numpy as np, keras, keras_ln
def make(layer):
    keras.utils.set_random_seed(0)
    layers = [keras.Input((5, 3)), layer(), keras.layers.Dense(1)]
    return keras.Sequential(layers)
def fit(model):
    x = np.random.default_rng(0).normal(size=(8, 5, 3)).astype("float32")
    model.compile("sgd", "mse")
    model.fit(x, x[:, 0, :1], epochs=2, shuffle=False, verbose=0)
    return np.concatenate([w.ravel() for w in model.get_weights()])
LAYERS = {
    "LNLSTM": lambda: keras_ln.LNLSTM(4, zoneout=0.2),
    "LNGRU": lambda: keras_ln.LNGRU(4),
    "LNSimpleRNN": lambda: keras_ln.LNSimpleRNN(4),
    "WNLSTM": lambda: keras_ln.WNLSTM(4),
    "BNLSTM": lambda: keras_ln.BNLSTM(4, max_steps=5),
}
"""


def test_flax_nnx(tmp_path):
    """Training gives the same; what changes attributes is refused."""
    train = (
        FIT
        + """
weights = {name: fit(make(layer)) for name, layer in LAYERS.items()}
np.savez("nnx" if keras.config.is_nnx_enabled() else "plain", **weights)
if keras.config.is_nnx_enabled():
    for layer in (
        lambda: keras.layers.LSTM(4), lambda: keras_ln.LNLSTM(4, dropout=0.1)
    ):
        try:
            fit(make(layer))
        except Exception as error:
            assert "Cannot mutate" in str(error), error
        else:
            raise SystemExit("docs/guides/other_tools.md: it runs now.")
"""
    )
    for enabled in ("true", "false"):
        jax = {"KERAS_BACKEND": "jax", "KERAS_NNX_ENABLED": enabled}
        run(train, tmp_path, **jax)
    compare = """
import numpy as np
plain, nnx = np.load("plain.npz"), np.load("nnx.npz")
assert len(plain.files) == 5
for name in plain.files:
    np.testing.assert_allclose(nnx[name], plain[name], rtol=1e-5, atol=1e-6)
"""
    run(compare, tmp_path)
