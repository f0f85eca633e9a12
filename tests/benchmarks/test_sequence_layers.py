"""The benchmark of sequence layers runs every provider that is installed."""

import importlib.util

import keras
import numpy as np
import pytest
from arrays import close
from scripts import rows

from benchmarks import baselines, harness, sequence_layers, settings


@pytest.mark.parametrize("layer", settings.LAYERS)
def test_providers(layer):
    options = sequence_layers.parse(
        ["--layer", layer, "--recurrent-dropout", "0.5"]
    )
    found = sequence_layers.programs(options, settings.SIZES["A"])
    names = [name.split(",")[0] for name in found]
    kinds = settings.LAYERS[layer]
    assert names[0] in ("keras_ln", "keras_ln (kernels)")
    expected = {
        *("keras_ln without dropout", "cell loop of keras_ln"),
        f"keras {kinds.keras}",
        *["cell in keras.layers.RNN"] * bool(kinds.cell),
        *[f"torch {kinds.torch}"] * bool(importlib.util.find_spec("torch")),
    }
    assert expected <= set(names)


@pytest.mark.parametrize("used", ["native", "cuda", "fused"])
def test_with_kernels_and_without(used, monkeypatch):
    """On a CPU and on a GPU."""
    import keras_ln

    answer = (used, {})
    monkeypatch.setattr(keras_ln.ops, "implementation", lambda _: answer)
    options = sequence_layers.parse(["--providers", "keras_ln"])
    names = [*sequence_layers.chosen(options, settings.SIZES["A"])]
    assert len(names) == (1 if used == "fused" else 3)
    assert names[0].startswith("keras_ln (kernels)") == (len(names) == 3)


def test_every_provider_is_timed_after_a_product():
    """Of its own framework, with the kernels or without them."""
    options = sequence_layers.parse(["--smoke"])
    size = settings.parse_size(*options.sizes)
    for name, program in sequence_layers.programs(options, size).items():
        for step in program().values():
            assert step.before() == harness.SQUARE[0], name


@pytest.mark.parametrize(
    "arguments, providers",
    [
        # Without the loops that XLA takes long to compile.
        ([], ("keras_ln", "keras LSTM", "LN scan", "torch")),
        pytest.param(
            ["--layer", "gru", "--recurrent-dropout", "0.5"],
            ("keras_ln", "cell in keras.layers.RNN, tensorflow graph"),
            marks=pytest.mark.full,
        ),
        (["--layer", "bn_lstm", "--return-sequences"], ("keras_ln",)),
        (["--layer", "wn_lstm"], ("keras_ln",)),
    ],
)
def test_smoke(arguments, providers, tmp_path, capsys):
    output = tmp_path / "sequences.csv"
    sequence_layers.main(
        ["--smoke", "--output", str(output), *arguments]
        + ["--providers", *providers]
    )
    table = rows(output)
    assert list(table[0]) == ["run", *harness.COLUMNS]
    assert table[0]["provider"].startswith("keras_ln")
    assert {row["mode"] for row in table} == set(harness.MODES)
    every_step = "--return-sequences" in arguments
    for row in table:
        assert row["provider"].startswith(providers)
        assert 0 < float(row["p20_ms"]) <= float(row["p80_ms"])
        assert row["sizes"].startswith("3x4x2x5 float32")
        assert ("every step" in row["sizes"]) == every_step
    backend = keras.backend.backend()
    assert (tmp_path / f"sequence_layers_{backend}.png").exists()
    assert "ours/this" in capsys.readouterr().out


def test_unknown_provider():
    with pytest.raises(SystemExit, match="any of: keras_ln"):
        sequence_layers.main(["--smoke", "--providers", "nobody"])


def test_baselines_compute_what_our_layer_does():
    import keras_ln

    if not importlib.util.find_spec("jax"):
        return
    import jax

    shape, units = (3, 4, 2), 5
    layer = keras_ln.LNLSTM(units, return_sequences=True)
    layer.build(shape)
    call, weights = baselines.jax_scan(shape, units, True)
    names = [variable.path.split("/")[-1] for variable in layer.weights]
    layer.set_weights([np.asarray(weights[name]) for name in names])
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    expected = keras.ops.convert_to_numpy(layer(x))
    scanned = call(weights, jax.numpy.asarray(x), False)
    close(scanned, expected, atol=2e-5)
    if importlib.util.find_spec("torch"):
        import torch

        # The kernels of both come from the same generator.
        call, _ = baselines.torch_script(shape, units, True, "float32")
        found = call(torch.tensor(x), False).detach().numpy()
        close(found, expected, atol=2e-5)
