"""Zoneout in wrappers, in `fit` and in cells that Keras loops over."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from descriptors import BY_NAME, CELLS, SEQUENCE_LAYERS, B, D, T, U
from pairwise import one_everywhere
from recurrence import MASKS, Problem
from tolerances import BFLOAT16
from zoneout_choices import H, choices, drawn_by, shares, zoned


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_mixed_precision(row, training):
    made = choices(row) if training else None
    expected, found = (
        Problem(
            row,
            zoned(row, return_state=True, dtype=dtype),
            mask=MASKS["right"],
            choices=made,
        )
        for dtype in ("float32", "mixed_bfloat16")
    )
    expected = expected.outputs(expected.layer())
    layer = found.layer()
    x = keras.ops.convert_to_tensor(found.x, "float32")
    for output, right in zip(
        layer(x, mask=MASKS["right"]), expected, strict=True
    ):
        assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
        close(keras.ops.cast(output, "float32"), right, **BFLOAT16)


@pytest.mark.parametrize("seed", [1, None])
def test_bidirectional(seed):
    """Each direction draws its own, unless Keras gives them one seed."""
    layer = keras.layers.Bidirectional(
        BY_NAME["LNLSTM"].make(zoneout=0.5, cell_zoneout=0.5, seed=seed)
    )
    x = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
    directions = layer.forward_layer, layer.backward_layer
    for _ in range(2):
        first, second = (drawn_by(part, x.shape) for part in directions)
        for name in first:
            same = (first[name] == second[name]).all()
            assert same == (seed is not None), name
    first, second = (to_numpy(layer(x, training=True)) for _ in range(2))
    assert (first != second).any()
    config = layer.get_config()
    assert keras.layers.Bidirectional.from_config(config).forward_layer.zoneout


@pytest.mark.every_backend
@pytest.mark.parametrize("use_fused", ["auto", False])
def test_fit_draws_anew_in_every_step(use_fused):
    """Over sequences of unknown length, where a framework has them."""
    row = BY_NAME["LNLSTM"]
    inputs = keras.Input((None, D))
    layer = row.make(**shares(row), seed=1, use_fused=use_fused)
    model = keras.Model(inputs, layer(inputs))
    # It changes no weights, so choices alone make a difference.
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x = np.random.default_rng(1).normal(size=(6, T, D)).astype("float32")
    history = model.fit(
        x, np.zeros((6, U)), batch_size=6, epochs=3, verbose=0
    ).history["loss"]
    assert len(set(history)) == 3
    assert model.evaluate(x, np.zeros((6, U)), verbose=0) == model.evaluate(
        x, np.zeros((6, U)), verbose=0
    )


CELL_ROWS = [row for row in CELLS if not row.batch_statistics]


@pytest.mark.parametrize("row", CELL_ROWS, ids=str)
def test_a_cell_by_itself_chooses_at_every_step(row):
    """Of h alone, whose old values are then in its outputs."""
    units, steps = 20, 8
    layer = keras.layers.RNN(
        row.make(units=units, zoneout=0.5, seed=1), return_sequences=True
    )
    x = np.random.default_rng(0).normal(size=(4, steps, D)).astype("float32")
    first, second = (to_numpy(layer(x, training=True)) for _ in range(2))
    for y in (first, second):
        before = np.concatenate([np.zeros_like(y[:, :1]), y[:, :-1]], 1)
        kept = y == before
        # 640 draws: a standard deviation of 0.02.
        assert 0.4 < kept.mean() < 0.6
        for axis in range(3):
            both = (kept & np.roll(kept, 1, axis)).mean()
            assert 0.15 < both < 0.35, axis
    assert (first != second).any(), "new choices in every call"


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_a_cell_by_itself_counts_in_half_precision(dtype):
    """Beyond what the dtype counts to: 257 is 256 in bfloat16."""
    layer = keras.layers.RNN(
        BY_NAME["LNSimpleRNNCell"].make(
            units=30, zoneout=0.5, seed=1, dtype=dtype
        ),
        return_sequences=True,
        return_state=True,
    )
    start = 2047 if dtype == "mixed_float16" else 255
    x = np.random.default_rng(0).normal(size=(2, 6, D)).astype("float32")
    state = [np.zeros((2, 30)), np.full((2, 1), start)]
    y, _, counter = layer(x, initial_state=state, training=True)
    y = to_numpy(keras.ops.cast(y, "float32"))
    np.testing.assert_array_equal(
        to_numpy(keras.ops.cast(counter, "float32")), 4.0
    )
    kept = y[:, 1:] == y[:, :-1]
    for t in range(4):
        assert (kept[:, t] != kept[:, t + 1]).any(), t


@pytest.mark.parametrize("row", one_everywhere(CELL_ROWS, "LNGRUCell"))
def test_a_cell_by_itself_in_fit(row):
    """With masks, in a stack, and saved."""
    stack = [row.make(**shares(row), seed=k) for k in range(2)]
    model = keras.Sequential(
        [keras.Input((T, D)), keras.layers.Masking(), keras.layers.RNN(stack)]
    )
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x = np.random.default_rng(1).normal(size=(6, T, D)).astype("float32")
    x[1, 2:] = 0.0
    losses = model.fit(
        x, np.zeros((6, U)), batch_size=6, epochs=3, verbose=0
    ).history["loss"]
    assert len(set(losses)) == 3


@pytest.mark.parametrize("name", ["LNLSTM", "LNGRU"])
def test_the_state_of_a_cell_counts_steps(name):
    cell = BY_NAME[f"{name}Cell"].make(zoneout=H)
    states = cell.get_initial_state(B)
    assert [tuple(state.shape) for state in states[-1:]] == [(B, 1)]
    for steps in (1, 2):
        _, states = cell(np.ones((B, D), "float32"), states)
        np.testing.assert_array_equal(to_numpy(states[-1]), float(steps))
    layer = BY_NAME[name].make(zoneout=H, return_state=True)
    found = layer(np.ones((B, T, D), "float32"))
    assert len(found) == 1 + BY_NAME[name].state_count
    assert layer.state_size == [U] * BY_NAME[name].state_count
