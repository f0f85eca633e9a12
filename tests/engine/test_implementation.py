"""Which implementation would run, why not the others, and that it does."""

import collections
import dataclasses
import functools
import sys

import keras
import numpy as np
import pytest
from backend_gradients import BACKEND, programs_are
from descriptors import BY_NAME, SEQUENCE_LAYERS, B, D, T

import keras_ln
from keras_ln import engine, ops
from keras_ln.engine.activations import ACTIVATIONS
from keras_ln.engine.dispatch import IMPLEMENTATIONS
from keras_ln.engine.implementations import Implementation
from keras_ln.engine.spec import ARRAYS, Array, Spec

# For the CPU extension see test_native.py.
pytestmark = pytest.mark.usefixtures("without_kernels")


@pytest.fixture
def ran(monkeypatch):
    """The names of the implementations that run from now on."""
    names = []
    for name, implementation in [*IMPLEMENTATIONS.items()]:

        def run(*args, name=name, run=implementation.run):
            names.append(name)
            return run(*args)

        noted = dataclasses.replace(implementation, run=run)
        monkeypatch.setitem(IMPLEMENTATIONS, name, noted)
    return names


def bump(z):
    return z / (1.0 + z * z)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_the_default_is_fused(row, ran):
    layer = row.make()
    for _ in ("not built", "built"):
        name, reasons = ops.implementation(layer)
        assert (name, [*reasons]) == ("fused", ["native", "cuda", "loop"])
        assert "fused is preferred." == reasons["loop"]
        layer(np.ones((B, T, D), "float32"))
    assert ran == ["fused", "fused"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"unroll": True}, "unroll=True asks for an unrolled loop"),
        ({"use_fused": False}, "use_fused=False asks for the cell loop"),
        ({"activation": bump}, "`activation` must be one of linear, relu, sig"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str([*value]),
)
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_the_loop_and_why(row, arguments, reason, ran):
    layer = row.make(**arguments)
    name, reasons = ops.implementation(layer)
    assert (name, [*reasons]) == ("loop", ["native", "cuda", "fused"])
    assert reason in reasons["fused"]
    layer(np.ones((B, T, D), "float32"))
    assert ran == ["loop"]


STATES = {"initial_state": [np.ones((B, 2), "f"), np.ones((B, 3), "f")]}
PROJECTED = {
    "zoneout of h": ({"zoneout": 0.1}, {}),
    "dropout of h": ({"recurrent_dropout": 0.1}, {"training": True}),
    "`reset_state`": (
        {},
        {"reset": np.ones((B, T)), "reset_state": STATES["initial_state"]},
    ),
    "a mask and an initial h": ({}, STATES | {"mask": np.ones((B, T), bool)}),
    "an initial h and one step": ({}, STATES),
}


@pytest.mark.parametrize("reason", PROJECTED)
@pytest.mark.parametrize("name", ["LNLSTM", "WNLSTM"])
def test_a_projection_in_the_loop_and_why(name, reason, ran):
    arguments, call = PROJECTED[reason]
    x = np.ones((B, 1 if "one step" in reason else T, D), "float32")
    make = functools.partial(BY_NAME[name].make, projection=2, **arguments)
    make()(x, **call)
    with pytest.raises(ValueError, match=f"{name} .* A projection .*{reason}"):
        make(use_fused=True)(x, **call)
    assert ran == ["loop"]


@pytest.mark.parametrize("call", [{}, STATES, {"mask": np.ones((B, T), bool)}])
@pytest.mark.parametrize("name", ["LNLSTM", "WNLSTM"])
def test_a_projection_is_fused(name, call, ran):
    layer = BY_NAME[name].make(projection=2, cell_zoneout=0.1, dropout=0.1)
    assert ops.implementation(layer)[0] == "fused"
    layer(np.ones((B, T, D), "float32"), training=True, **call)
    assert ran == ["fused"]


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_inside_portable(row, ran):
    layer, must = row.make(), row.make(use_fused=True)
    with ops.portable():
        name, reasons = ops.implementation(layer)
        assert (name, [*reasons]) == ("loop", ["native", "cuda", "fused"])
        assert "ops.portable() asks" in reasons["fused"]
        layer(np.ones((B, T, D), "float32"))
        with pytest.raises(ValueError, match=f"True, but {row.name}.*portable"):
            ops.implementation(must)
    assert ran == ["loop"]
    assert ops.implementation(must)[0] == "fused"


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_what_a_compiler_differentiates_by_itself(row, ran, monkeypatch):
    layer, must = row.make(), row.make(use_fused=True)
    programs_are(
        monkeypatch, compiler_reason="torch.compile reads Python code."
    )
    name, reasons = ops.implementation(layer)
    assert name == "loop" and "torch.compile" in reasons["fused"]
    layer(np.ones((B, T, D), "float32"))
    with pytest.raises(ValueError, match=f"True, but {row.name}.*torch.compil"):
        must(np.ones((B, T, D), "float32"))
    assert ran == ["loop"]


if BACKEND != "jax":  # Which does not tell.

    def in_forward_mode(function, x):
        if BACKEND == "torch":
            import torch

            x = torch.from_numpy(x)
            return torch.func.jvp(function, (x,), (x,))
        import tensorflow as tf

        x = tf.constant(x)
        with tf.autodiff.ForwardAccumulator(x, x):
            return function(x)

    @pytest.mark.every_backend
    @pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
    def test_forward_mode(row, ran):
        layer, must = row.make(), row.make(use_fused=True)
        x, answers = np.ones((B, T, D), "float32"), []

        def function(x):
            answers.append(ops.implementation(layer))
            return layer(x)

        in_forward_mode(function, x)
        ((name, reasons),) = answers
        assert name == "loop"
        assert "ordinary operations" in reasons["fused"]
        assert reasons["native"] == reasons["fused"]
        message = f"True, but {row.name}.*ordinary operations"
        with pytest.raises(ValueError, match=message):
            in_forward_mode(must, x)
        assert ran == ["loop"]
        assert ops.implementation(layer)[0] == "fused"

    @pytest.mark.every_backend
    def test_forward_mode_through_another_layer(ran):
        """TensorFlow follows tensors, torch whole programs."""
        layer, x = BY_NAME["LNGRU"].make(), np.ones((B, T, D), "float32")
        in_forward_mode(lambda _: layer(x), x)
        assert ran == ["fused" if BACKEND == "tensorflow" else "loop"]


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.LSTM(2),
        keras.layers.Bidirectional(keras_ln.LNLSTM(2)),
        keras.layers.RNN(keras_ln.LNLSTMCell(2)),
        keras_ln.LNLSTMCell(2),
        keras_ln.LayerNormalization(),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_other_layers_are_refused(layer):
    kind = type(layer).__name__
    message = f"`layer` must be a recurrent .*Received: {kind}.*rnn_summary"
    with pytest.raises(ValueError, match=message):
        ops.implementation(layer)
    assert f"Received: {kind}" in ops.unsupported_reason(layer)


def problem_of(row):
    """What a layer of the row asks of an op."""
    layer = row.make()
    layer.build((B, T, D))
    x = np.ones((B, T, D), "float32")
    states = layer.get_initial_state(B)
    names = [f"initial_{name}" for name in layer.cell.equations.states]
    arrays = {"x": keras.ops.convert_to_tensor(x), **layer.cell.tensors()}
    spec, how = layer.as_problem()
    return spec, arrays | dict(zip(names, states, strict=True)), how


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_what_nobody_reads_is_refused(row, monkeypatch):
    """A new array and a new field, by every implementation and by the door."""
    spec, arrays, how = problem_of(row)
    arrays = {n: a for n, a in arrays.items() if "_moving_" not in n}
    engine.run(spec, arrays, how)
    new = Array("BU", learned=False)
    monkeypatch.setitem(ARRAYS, "temperature", new)
    more = arrays | {"temperature": arrays["initial_h"]}
    for name, implementation in IMPLEMENTATIONS.items():
        if name in ("native", "cuda"):
            continue  # They need kernels: test_native.py, test_cuda.py.
        assert implementation.refusal(name, spec, arrays, how) is None
        refusal = implementation.refusal(name, spec, more, how)
        assert refusal == (
            f"The implementation {name!r} does not read the array "
            "`temperature`."
        )
    with pytest.raises(ValueError, match="'loop' .* array `temperature`"):
        engine.run(spec, more, how)
    Wider = collections.namedtuple(
        "Spec",
        (*Spec._fields, "invented"),
        defaults=(*Spec.__new__.__defaults__, 0.0),
    )
    module = sys.modules[Implementation.__module__]
    monkeypatch.setattr(module, "Spec", Wider)
    Wider.shares, Wider.vectors = Spec.shares, Spec.vectors
    wider = Wider(*spec, invented=3.0)
    for name, implementation in IMPLEMENTATIONS.items():
        if name not in ("native", "cuda"):
            refusal = implementation.refusal(name, wider, arrays, how)
            assert "does not read the setting or weight `invented`" in refusal
    with pytest.raises(ValueError, match="'loop' .* `invented`"):
        engine.run(wider, arrays, how)


OF_LSTM = {
    "carry_normalized_state": True,
    "recurrent_activation": ACTIVATIONS["tanh"],
    "cell_zoneout_share": 0.1,
}


@pytest.mark.parametrize("field", OF_LSTM)
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_fields_that_a_cell_does_not_heed_are_refused(row, field):
    """By every implementation, so that the kernels need not know them."""
    spec, arrays, how = problem_of(row)
    asked = spec._replace(**{field: OF_LSTM[field]})
    heeded = {
        "LNGRU": ("recurrent_activation",),
        "LNSimpleRNN": (),
        "BNLSTM": ("recurrent_activation", "cell_zoneout_share"),
    }.get(row.name, OF_LSTM)
    refusals = [
        IMPLEMENTATIONS[name].refusal(name, asked, arrays, how)
        for name in ("fused", "loop")
    ]
    if field in heeded:
        assert refusals == [None, None]
    else:
        assert all(f"`{field}`" in refusal for refusal in refusals)
        with pytest.raises(ValueError, match=f"'loop' does not .* `{field}`"):
            engine.run(asked, arrays, how)


@pytest.mark.parametrize("name", ["x", "mask", "input_mask", "reset_h"])
def test_a_weight_of_a_subclass_has_no_name_of_an_array(name):
    names = (*keras_ln.LNLSTMCell.weight_names, name)
    with pytest.raises(ValueError, match=f"weight `{name}` otherwise"):
        type("Cell", (keras_ln.LNLSTMCell,), {"weight_names": names})


def test_an_activation_of_ones_own_is_not_kept():
    """Nor need it be hashable."""
