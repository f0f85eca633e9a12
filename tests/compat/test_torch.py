"""Layers of torch: norms and recurrent layers, as ours."""

import re

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND, value_and_gradients
from tolerances import FLOAT64

import keras_ln
from keras_ln import compat

torch = pytest.importorskip("torch")

B, T, D, U = 3, 5, 4, 6
KINDS = {
    "LSTM": (torch.nn.LSTM, keras_ln.LNLSTM, compat.load_torch_lstm),
    "GRU": (torch.nn.GRU, keras_ln.LNGRU, compat.load_torch_gru),
}


def torch_module(kind, **arguments):
    torch.manual_seed(0)
    module = KINDS[kind][0](D, U, batch_first=True, **arguments).double()
    for weight in module.parameters():
        weight.data.normal_()
    return module


def projected(size, **arguments):
    return keras_ln.LNLSTM(U, projection=size, **arguments)


def arrays(module):
    return {n: w.detach().numpy() for n, w in module.state_dict().items()}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients(kind, bias):
    theirs = torch_module(kind, bias=bias)
    _, make, load = KINDS[kind]
    layer = make(
        U, normalize=(), use_bias=bias, return_sequences=True, dtype="float64"
    )
    assert load(layer, arrays(theirs)) is layer
    x, cotangent = (
        np.random.default_rng(0).normal(size=(B, T, n)) for n in (D, U)
    )
    leaf = torch.tensor(x, requires_grad=True)
    y, _ = theirs(leaf)
    (y * torch.tensor(cotangent)).sum().backward()
    result = value_and_gradients(layer, x, [cotangent])
    close(result.outputs[0], y.detach(), **FLOAT64)
    close(result.gradients["x"], leaf.grad, **FLOAT64)
    # That of a kernel, moved as the weights are.
    moved = make(U, normalize=(), use_bias=bias, dtype="float64")
    gradients = {n: w.grad.numpy() for n, w in theirs.named_parameters()}
    load(moved, gradients)
    for name in ("kernel", "recurrent_kernel"):
        wanted = keras.ops.convert_to_numpy(getattr(moved.cell, name))
        close(result.gradients[name], wanted, **FLOAT64)


@pytest.mark.parametrize(
    ("kind", "projection"), [("LSTM", None), ("LSTM", 2), ("GRU", None)]
)
def test_layers_and_directions(kind, projection):
    more = {"proj_size": projection} if projection else {}
    theirs = torch_module(kind, num_layers=2, bidirectional=True, **more)
    _, make, load = KINDS[kind]
    make = projected if projection else make
    layers = [
        keras.layers.Bidirectional(
            make(
                projection or U,
                normalize=(),
                use_bias=True,
                return_sequences=True,
                dtype="float64",
            ),
            dtype="float64",
        )
        for _ in range(2)
    ]
    load(layers, theirs)
    x = np.random.default_rng(0).normal(size=(B, T, D))
    y = layers[1](layers[0](x))
    wanted = theirs(torch.tensor(x))[0].detach()
    close(y, wanted, **FLOAT64)


@pytest.mark.parametrize("kind", KINDS)
def test_normalised_layers_start_from_the_weights(kind):
    """A beta takes over a bias that the layer does not have."""
    theirs = torch_module(kind)
    _, make, load = KINDS[kind]
    layer = load(make(U), arrays(theirs))
    plain = load(make(U, normalize=(), use_bias=True), arrays(theirs))
    names = {n: n for n in ("kernel", "recurrent_kernel", "bias")}
    if kind == "GRU":
        del names["bias"]
        names |= {"kernel_beta": "bias", "recurrent_beta": "recurrent_bias"}
    for name, of_plain in names.items():
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(getattr(layer.cell, name)),
            keras.ops.convert_to_numpy(getattr(plain.cell, of_plain)),
        )


@pytest.mark.parametrize("kind", KINDS)
def test_dtypes_of_torch(kind):
    """Halves are exact in float32, from the module and as tensors."""
    _, make, load = KINDS[kind]
    for dtype in (torch.bfloat16, torch.float16):
        halves = torch_module(kind).to(dtype)
        layer, wanted = (
            make(U, normalize=(), use_bias=True),
            make(U, normalize=(), use_bias=True),
        )
        load(layer, halves)
        load(wanted, arrays(halves.float()))
        np.testing.assert_equal(layer.get_weights(), wanted.get_weights())
        before = layer.get_weights()
    for dtype in (torch.complex64, torch.int32, torch.bool, torch.float8_e5m2):
        for name, weight in torch_module(kind).state_dict().items():
            wrong = torch_module(kind).state_dict() | {name: weight.to(dtype)}
            with pytest.raises(ValueError, match=f"must hold {name} as an arr"):
                load(layer, wrong)
    np.testing.assert_equal(before, layer.get_weights())


def test_what_is_refused():
    weights = arrays(torch_module("LSTM", num_layers=2))
    with pytest.raises(
        ValueError, match=r"each of torch.nn.LSTM: l0, l1\. .*: 1;"
    ):
        compat.load_torch_lstm(keras_ln.LNLSTM(U), weights)
    layers = [keras_ln.LNLSTM(U), keras_ln.LNLSTM(U + 1)]
    with pytest.raises(ValueError, match="`weights` must fit lnlstm"):
        compat.load_torch_lstm(layers, weights)
    assert not layers[0].built
    with pytest.raises(ValueError, match="`layers` must be different layers"):
        compat.load_torch_lstm(layers[:1] * 2, weights)
    on_meta = torch.nn.LSTM(D, U, device="meta")
    with pytest.raises(ValueError, match=r"must hold weight_ih_l0 .* no data"):
        compat.load_torch_lstm(layers[0], on_meta)
    for kind, (_, make, load) in KINDS.items():
        right = arrays(torch_module(kind))
        for name in ("bias_hh_l0", "weight_ih_l0"):
            for shape in ((), (1,), (5,)):
                message = rf"must fit ln.* Received: .*{name[:-3]} "
                message += re.escape(str(shape))
                with pytest.raises(ValueError, match=message):
                    load(make(U), {**right, name: np.ones(shape)})
    lstm = arrays(torch_module("LSTM"))
    for layer, size in ((keras_ln.LNLSTM(U), 2), (projected(3), 2)):
        with pytest.raises(ValueError, match="`weights` must fit lnlstm"):
            compat.load_torch_lstm(layer, torch_module("LSTM", proj_size=size))
    with pytest.raises(ValueError, match=r"projection_kernel \(6, 2\)"):
        compat.load_torch_lstm(
            projected(2), {**lstm, "weight_hh_l0": np.ones((4 * U, 2))}
        )
    normed = torch.nn.LSTM(D, U)
    torch.nn.utils.parametrizations.weight_norm(normed, "weight_hh_l0")
    for load, layer in (
        (compat.load_torch_lstm, keras_ln.LNLSTM(U)),
        (compat.load_fastrnns_lstm, keras_ln.LNLSTM(U)),
    ):
        with pytest.raises(ValueError, match="remove_parametrizations"):
            load(layer, normed)
        with pytest.raises(ValueError, match="remove_weight_norm"):
            load(layer, {"weight_hh_l0_g": np.ones(4)})
    # The columns of an LSTM are no multiple of 3.
    other = torch.nn.LSTM(D, 4)
    with pytest.raises(ValueError, match="`weights` must fit lngru"):
        compat.load_torch_gru(keras_ln.LNGRU(4), arrays(other))
    with pytest.raises(ValueError, match="must be torch.nn.GRU or its"):
        compat.load_torch_gru(keras_ln.LNGRU(U), {"kernel": np.ones((D, U))})
    with pytest.raises(ValueError, match="must be a keras_ln LNGRU"):
        compat.load_torch_gru([keras_ln.LNLSTM(U)] * 2, weights)


if BACKEND == "torch":
    import torch

    @pytest.mark.promise("`LayerNormalization` is `torch.nn.LayerNorm`")
    @pytest.mark.parametrize("epsilon", [1e-5, 1e-3])
    @pytest.mark.parametrize(
        "shape, axis", [((4, 7), -1), ((2, 3, 5), -1), ((2, 3, 5), (-2, -1))]
    )
    def test_torch_layer_norm(shape, axis, epsilon):
        rng = np.random.default_rng(0)
        x, cotangent = rng.normal(size=(2, *shape))
        sizes = shape[1:] if isinstance(axis, tuple) else shape[-1:]
        theirs = torch.nn.LayerNorm(sizes, eps=epsilon, dtype=torch.float64)
        ours = keras_ln.LayerNormalization(axis, epsilon, dtype="float64")
        ours.build(shape)
        pairs = {"gamma": theirs.weight, "beta": theirs.bias}
        for name, weight in pairs.items():
            value = rng.normal(size=sizes)
            getattr(ours, name).assign(value)
            weight.data = torch.tensor(value)
        leaf = torch.tensor(x, requires_grad=True)
        y = theirs(leaf)
        (y * torch.tensor(cotangent)).sum().backward()
        result = value_and_gradients(ours, x, [cotangent])
        wanted = {"x": leaf} | pairs
        close(result.outputs[0], y.detach(), **FLOAT64)
        for name, tensor in wanted.items():
            close(result.gradients[name], tensor.grad, name, **FLOAT64)
