"""The layers among Keras' own: wrappers, stacks, masks, initial states."""

import keras
import numpy as np
import pytest
from arrays import close
from descriptors import (
    BY_NAME,
    CELLS,
    ROWS,
    SEQUENCE_LAYERS,
    B,
    D,
    T,
    U,
    named_weights,
)
from layer_calls import shares
from pairwise import one_everywhere
from recurrence import MASKS, Problem
from tolerances import FLOAT64

import keras_ln


@pytest.mark.parametrize(
    "row, own",
    [
        *((row, {"seed": 3}) for row in SEQUENCE_LAYERS),
        *((row, shares(row)) for row in SEQUENCE_LAYERS),
        (BY_NAME["LNLSTM"], {"carry_normalized_state": True}),
    ],
    ids=str,
)
def test_cell_in_keras_rnn(row, own):
    """Keras' loop around the cell, without a mask, is our layer."""
    both = {"return_sequences": True, "return_state": True}
    problem = Problem(row, both | own)
    layer = problem.layer()
    cell = BY_NAME[row.cell].make(dtype="float64", **own)
    loop = keras.layers.RNN(cell, **both, dtype="float64")
    loop.build(problem.x.shape)
    loop.set_weights(layer.get_weights())
    expected = problem.run(layer)
    # Cells count steps in one more state for batch statistics and zoneout.
    problem.cotangents += [None] * (
        len(keras.tree.flatten(cell.state_size)) - row.state_count
    )
    result = problem.run(loop)
    close(result.outputs[: len(expected.outputs)], expected.outputs, **FLOAT64)
    close(result.gradients, expected.gradients, **FLOAT64)


@pytest.mark.parametrize("use_fused", ["auto", False])
@pytest.mark.parametrize(
    "row", one_everywhere(SEQUENCE_LAYERS, "LNLSTM", "BNLSTM")
)
def test_unknown_sizes(row, use_fused):
    """A model of unknown batch and length takes any; so do gradients."""
    common = {"return_sequences": True, "use_fused": use_fused}
    problem = Problem(
        row,
        common | {"return_state": True},
        mask=MASKS["middle"],
        given_states=True,
        training=True,
    )
    problem.check(compiled=True, unknown_sizes=True)
    layer = Problem(row, common).layer()
    inputs = keras.Input((None, D), dtype="float64")
    model = keras.Model(inputs, layer(inputs))
    assert model.output_shape == (None, None, U)
    rng = np.random.default_rng(1)
    for batch, steps in ((2, 3), (5, 6), (1, 1)):
        x = rng.normal(size=(batch, steps, D))
        zeros = [np.zeros((batch, U))] * row.state_count
        options = {"training": False} if row.batch_statistics else {}
        expected, *_ = row.oracle(named_weights(layer), x, zeros, **options)
        close(model(x), expected, **FLOAT64)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_an_initial_state_of_one_row_serves_all(row):
    """As one that is learnt; its gradient is the sum over the rows."""
    problem = Problem(row, {"return_sequences": True}, given_states=True)
    layer = problem.layer()
    one = [state[:1] for state in problem.states]
    problem.states = [np.repeat(state, B, axis=0) for state in one]
    every = problem.run(layer)
    problem.states = one
    found = problem.run(layer)
    close(found.outputs[0], every.outputs[0], **FLOAT64)
    for name, gradient in every.gradients.items():
        if name.removeprefix("state").isdigit():
            gradient = gradient.sum(0, keepdims=True)
        close(found.gradients[name], gradient, name, **FLOAT64)


@pytest.mark.parametrize("row", CELLS, ids=str)
def test_a_state_of_one_row_serves_all(row):
    cell, x = row.make(), np.ones((B, D), "float32")
    one, every = (cell(x, cell.get_initial_state(n))[0] for n in (1, B))
    close(one, every, rtol=1e-6)


class StartingFromOnes(keras_ln.LNLSTM):
    """Overrides what Keras calls by name, and its loop over time."""

    def get_initial_state(self, *, batch_size):
        return [state + 1.0 for state in super().get_initial_state(batch_size)]

    def inner_loop(self, sequences, initial_state, mask, training=False):
        return super().inner_loop(
            2.0 * sequences, initial_state, mask, training
        )


def test_overridden_methods_of_keras_rnn():
    x = np.ones((B, T, D), "float32")
    layer, plain = StartingFromOnes(U, seed=1), keras_ln.LNLSTM(U, seed=1)
    for one in (layer, plain):
        one.build(x.shape)
    plain.set_weights(layer.get_weights())
    ones = [keras.ops.ones((B, U))] * 2
    close(layer(x), plain(2.0 * x, initial_state=ones), rtol=1e-6)


if keras.backend.backend() == "torch":

    def test_weights_on_another_device_are_moved():
        import torch

        cell = keras_ln.LNLSTMCell(U)
        cell.build((B, D))
        cell.kernel = torch.empty((D, 4 * U), device="meta")
        assert cell.tensors()["kernel"].is_cpu

    @pytest.mark.parametrize("row", ROWS, ids=str)
    def test_tensors_on_another_device_are_moved(row):
        """As Keras' own layers move them."""
        import torch

        x, options = torch.ones(row.input_shape), {}
        states = [torch.ones(B, U) for _ in range(row.state_count)]
        if row.is_cell:
            counters = [torch.ones(B, 1)] if row.batch_statistics else []
            options = {"states": [*states, *counters]}
        elif row.is_recurrent:
            flags = torch.ones(B, T, dtype=bool)
            options = {"initial_state": states, "mask": flags}
            if not row.batch_statistics:
                options |= {"reset": flags, "reset_state": states}
        # It has shapes alone, and stands for a GPU.
        with keras.device("meta"):
            outputs = keras.tree.flatten(row.make()(x, **options))
        assert all(output.is_meta for output in outputs)
