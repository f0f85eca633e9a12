"""Biases whose units forget after different times."""

import keras
import numpy as np
import pytest

import keras_ln

U, T = 4, 50
every_backend = pytest.mark.every_backend


def _numpy(x):
    return keras.ops.convert_to_numpy(x)


def _bias(shape, units=U, steps=T, cell="lstm", seed=3, dtype=None):
    make = keras_ln.LogUniformForgetBias(units, steps, cell, seed)
    return _numpy(make(shape, dtype))


@every_backend
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_gates_have_their_signs(dtype):
    i, f, c, o = _bias((4 * U,), dtype=dtype).astype("float64").reshape(4, U)
    np.testing.assert_array_equal(i, -f)
    assert len({*f}) > 2 and not c.any() and not o.any()
    z, *rest = _bias((3 * U,), cell="gru", dtype=dtype).reshape(3, U)
    np.testing.assert_array_equal(z.astype("float64"), f)
    assert not np.any(rest)
    z, *rest = _bias((3 * U,), cell="lngru", dtype=dtype).reshape(3, U)
    np.testing.assert_array_equal(-z.astype("float64"), f)
    assert not np.any(rest)
    inputs, recurrent = _bias((2, 3 * U), cell="gru", dtype=dtype)
    np.testing.assert_array_equal(inputs[:U].astype("float64"), f)
    assert not inputs[U:].any() and not recurrent.any()


def test_it_comes_back_from_its_config():
    for seed in (3, None, keras.random.SeedGenerator(3)):
        one = keras_ln.LogUniformForgetBias(U, T, "gru", seed)
        saved = keras.saving.serialize_keras_object(one)
        for two in (keras.saving.deserialize_keras_object(saved), one.clone()):
            assert type(two) is keras_ln.LogUniformForgetBias
            assert two.get_config().keys() == one.get_config().keys()
            assert (two.units, two.steps, two.cell) == (U, T, "gru")
            if seed == 3:
                assert two.get_config() == one.get_config()
                same = _numpy(one((3 * U,))), _numpy(two((3 * U,)))
                np.testing.assert_array_equal(*same)


LAYERS = {
    "LSTM": (keras.layers.LSTM, "lstm", {"unit_forget_bias": False}),
    "LNLSTM": (keras_ln.LNLSTM, "lstm", {"unit_forget_bias": False}),
    "BNLSTM": (keras_ln.BNLSTM, "lstm", {"unit_forget_bias": False}),
    "WNLSTM": (keras_ln.WNLSTM, "lstm", {"unit_forget_bias": False}),
    "GRU": (keras.layers.GRU, "gru", {}),
    "GRU, reset before": (keras.layers.GRU, "gru", {"reset_after": False}),
    "LNGRU": (keras_ln.LNGRU, "lngru", {"use_bias": True}),
    "plain LNGRU": (
        *(keras_ln.LNGRU, "lngru"),
        {"use_bias": True, "normalize": ()},
    ),
}


@every_backend
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_it_and_is_saved_with_it(tmp_path, name):
    cls, cell, options = LAYERS[name]
    start = keras_ln.LogUniformForgetBias(U, T, cell, seed=3)
    layer = cls(U, bias_initializer=start, **options)
    model = keras.Sequential([keras.Input((6, 2)), layer])
    shape = tuple(layer.cell.bias.shape)
    np.testing.assert_array_equal(
        _numpy(layer.cell.bias), _bias(shape, cell=cell)
    )
    if getattr(layer.cell, "recurrent_bias", None) is not None:
        assert not _numpy(layer.cell.recurrent_bias).any()
    # With nothing but its bias, a state is kept for as long as it says.
    matrices = ("kernel", "kernel_g", "recurrent_kernel", "recurrent_kernel_g")
    for weight in layer.weights:
        if weight.name in matrices or "gamma" in weight.name:
            weight.assign(np.zeros(weight.shape))
    x = np.zeros((1, 6, 2), "float32")
    f = _bias((4 * U,))[U : 2 * U].astype("float64")
    keep = 1 / (1 + np.exp(-f))
    start = [np.full((1, U), 0.5, "float32")] * (2 if cell == "lstm" else 1)
    other = cls(U, return_state=True, **options)
    other.build((1, 6, 2))
    other.set_weights(layer.get_weights())
    *_, state = other(x, initial_state=start)
    np.testing.assert_allclose(_numpy(state)[0], 0.5 * keep**6, rtol=1e-4)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").layers[-1]
    config = again.cell.bias_initializer.get_config()
    assert config == {"units": U, "steps": T, "cell": cell, "seed": 3}


def test_what_it_does_not_fit_is_refused():
    make = keras_ln.LogUniformForgetBias
    without = {"use_bias": False, "bias_initializer": make(U, T, "gru")}
    plain = keras.Sequential(
        [keras.Input((6, 2)), keras.layers.GRU(U, **without)]
    )
    assert not keras_ln.with_layer_norm(plain).layers[-1].cell.use_bias
    with pytest.raises(ValueError, match="without use_bias=True"):
        keras_ln.LNGRU(U, bias_initializer=make(U, T, "lngru"))
    with pytest.raises(ValueError, match="unit_forget_bias=False"):
        keras.layers.LSTM(U, bias_initializer=make(U, T)).build((None, 6, 2))
    with pytest.raises(ValueError, match="unit_forget_bias=False"):
        keras_ln.LNLSTM(U, bias_initializer=make(U, T)).build((None, 6, 2))
    for cell, shape in (("gru", (2, U)), ("lngru", (2, 3 * U)), ("lstm", U)):
        with pytest.raises(ValueError, match=r"biases of shape .* Received: "):
            make(U, T, cell)((shape,) if shape is U else shape)
    with pytest.raises(ValueError, match="cell='lngru': an update gate of 1"):
        keras_ln.LNGRU(U, use_bias=True, bias_initializer=make(U, T, "gru"))
    for wrong, told in (
        ({"units": 0}, "`units` must be an integer of at least 1"),
        ({"units": 2.0}, "`units` must be an integer of at least 1"),
        ({"steps": 1}, "`steps` must be an integer of at least 2"),
        ({"cell": "LSTM"}, r"`cell` must be any of .* Received: cell='LSTM'"),
    ):
        with pytest.raises(ValueError, match=told):
            make(**{"units": U, "steps": T} | wrong)
    assert make(1, 2)((4,)).shape == (4,)  # The least that there may be.
