"""Models of Keras' guides: the script runs, every provider in every model."""

import keras
from scripts import rows

from benchmarks import harness, plain_models


def test_it_runs(tmp_path):
    output = tmp_path / "plain"
    models = ["translation", "classifier"]
    plain_models.main(["--smoke", "--models", *models, "--output", str(output)])
    table = rows(output.with_suffix(".csv"))
    providers = {"keras_ln", "keras"}
    if keras.backend.backend() == "torch":
        providers.add("torch.nn")
    for op in models:
        for mode in harness.MODES:
            found = {
                row["provider"].partition(",")[0]
                for row in table
                if (row["op"], row["mode"]) == (op, mode)
            }
            assert providers <= found
    assert output.with_suffix(".png").exists()
