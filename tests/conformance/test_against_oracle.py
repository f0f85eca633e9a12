"""Every sequence layer against its oracle: outputs, states, all gradients."""

import keras
import numpy as np
import pytest
from backend_gradients import forward, programs_are
from descriptors import BY_NAME, SEQUENCE_LAYERS
from layer_calls import choices, shares
from pairwise import pairwise, parameters
from recurrence import MASKS, RESETS, Problem, arguments_of
from tolerances import FLOAT32

from keras_ln.engine.implementations import fused_op


def bump(z):
    return z / (1.0 + z * z)


# By name: what the layer gets, and the oracle.
ACTIVATIONS = {
    "tanh": ("tanh", np.tanh),
    "relu": ("relu", lambda z: np.where(z.real > 0, z, 0.0)),
    # What the fused op does not know must come out right all the same.
    "own": (bump, bump),
}
COMMON = {
    "mask": tuple(MASKS),
    "use_fused": (False, "auto"),
    "go_backwards": (False, True),
    "zero_output_for_mask": (False, True),
    "return_sequences": (True, False),
    "given_states": (True, False),
    "return_state": (True, False),
    # Where the other gradients are taken after the loop.
    "on_cpu": (True, False),
    "unroll": (False, True),
    "drops": (False, True),
    # By shares, as at inference, or by choices.
    "zones": ("nothing", "shares", "choices"),
    # B, T, D, U
    "sizes": ((3, 4, 2, 3), (1, 4, 1, 3), (3, 1, 2, 1)),
    "activation": tuple(ACTIVATIONS),
}
STARTS = {"reset": tuple(RESETS), "given_resets": (True, False)}
CASES = [
    {"name": row.name, **case}
    for row in SEQUENCE_LAYERS
    for case in pairwise(
        COMMON | row.options | ({} if row.batch_statistics else STARTS)
    )
]


def problem_of(case):
    """The problem of a case, and what its oracle has to know."""
    row, zones = BY_NAME[case["name"]], case["zones"]
    batch, steps, features, units = case["sizes"]

    def cut(array):
        return None if array is None else array[:batch, :steps]

    # Nothing is dropped or chosen at inference, and one row has no variance.
    training = case.get("training", case["drops"]) and zones != "shares"
    training = training and not (row.batch_statistics and batch == 1)
    activation, known = ACTIVATIONS[case["activation"]]
    arguments = arguments_of(row, case)
    arguments |= {"units": units, "activation": activation}
    if zones != "nothing":
        arguments |= shares(row)
    chooses = zones == "choices" and (training or not row.batch_statistics)
    problem = Problem(
        row,
        arguments,
        choices=choices(
            row, (batch, steps, units), projection=arguments.get("projection")
        )
        if chooses
        else None,
        drops=case["drops"] and training,
        mask=cut(MASKS[case["mask"]]),
        given_states=case["given_states"],
        reset=cut(RESETS[case.get("reset", "none")]),
        given_resets=case.get("given_resets", False),
        training=training,
        shape=(batch, steps, features),
    )
    return problem, {"activation": known}


@pytest.mark.parametrize("case", parameters(CASES))
def test_values_and_gradients(case, monkeypatch):
    programs_are(monkeypatch, on_cpu=case["on_cpu"])
    if keras.backend.backend() == "jax" and not case["on_cpu"]:
        # There an iteration of a loop is several steps. Of the four steps, two
        # iterations here, or one and the step that is left.
        steps = 2 if case["return_sequences"] else 3
        monkeypatch.setattr("jax.default_backend", lambda: "gpu")
        monkeypatch.setattr("keras_ln.backend.jax._STEPS_ON_A_GPU", steps)
        # BNLSTM's programs are otherwise those of a CPU.
        fused_op.cache_clear()
    problem, known = problem_of(case)
    problem.check(oracle=known, compiled=True)


@pytest.mark.parametrize("use_fused", [False, "auto"])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_single_precision(row, use_fused):
    arguments = {
        "use_fused": use_fused,
        "return_sequences": True,
        "return_state": True,
    }
    problem = Problem(row, arguments, mask=MASKS["middle"], given_states=True)
    layer = problem.layer(dtype="float32")
    result = problem.check(layer, FLOAT32)
    assert {output.dtype for output in result.outputs} == {np.dtype("float32")}


@pytest.mark.parametrize("use_fused", [False, "auto"])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_every_array_matters(row, use_fused):
    """No agreement by accident: each weight and state moves the output."""
    arguments = {"use_fused": use_fused, "return_sequences": True}
    problem = Problem(row, arguments, given_states=True)
    layer = problem.layer()
    compiled = forward(layer)

    def change():
        (y,) = compiled(problem.x, initial_state=problem.states)
        return abs(y - before).max()

    (before,) = compiled(problem.x, initial_state=problem.states)
    rng = np.random.default_rng(3)
    for variable in layer.weights:
        value = variable.numpy().copy()
        # Not a common shift or scale, which a norm would undo.
        variable.assign(value * (1.0 + 0.1 * rng.normal(size=value.shape)))
        assert change() > 1e-5, variable.name
        variable.assign(value)
    for k, state in enumerate(problem.states):
        kept = state.copy()
        state *= 1.0 + 0.1 * rng.normal(size=state.shape)
        assert change() > 1e-5, f"state{k}"
        state[:] = kept
    assert change() == 0.0
