"""The experiment of section 6.6: its models, and one that diverges."""

import dataclasses

import permutation_invariant_mnist as script
import permutation_invariant_mnist_model
import pytest
from common import cli
from keras import layers
from scripts import plan


@pytest.mark.parametrize("size", ["4", "128"])
def test_unbiased_statistics_at_batch_size_four(size):
    flags = ["--smoke", "--norm", "batch", "--batch-size", size]
    args = plan(script.EXPERIMENT, *flags)
    task = script.EXPERIMENT.make_task(args, script.EXPERIMENT.load_data(args))
    found = {getattr(x, "unbiased", None) for x in task.model.layers}
    assert found == {None, size == "4"}


@pytest.mark.parametrize("norm", script.KINDS)
def test_what_the_layers_compute(norm):
    model = permutation_invariant_mnist_model.build_model(norm)
    activations = [x for x in model.layers if isinstance(x, layers.Activation)]
    assert [x.activation.__name__ for x in activations] == (
        ["relu", "relu", "linear"]
    )
    dense = [x for x in model.layers if isinstance(x, layers.Dense)]
    assert all(x.use_bias == (norm != "batch") for x in dense)


@pytest.mark.full
def test_divergence_is_named_and_spares_the_last_model(tmp_path, capsys):
    folder = tmp_path / "run"
    flags = ["--smoke", "--learning-rate", "1e30", "--output-dir"]
    assert script.main([*flags, str(folder), "--norm", "none"]) == 1
    err = capsys.readouterr().err
    assert "loss is " in err and "a smaller --learning-rate may help" in err
    assert "kept" not in err
    assert not (folder / "metrics.json").exists()
    assert not (folder / "model.keras").exists()

    # In a comparison it is a result, and the others are trained.
    folder = tmp_path / "runs"
    flags += [str(folder), "--compare", "--batch-size", "128"]
    experiment = dataclasses.replace(script.EXPERIMENT, kinds=("none",))
    assert cli.run(experiment, flags) == 1
    assert "diverged" in capsys.readouterr().out
    assert (folder / "comparison.png").exists()
