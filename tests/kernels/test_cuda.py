"""The GPU kernels behind the layers, run by a driver that emulates them.

Everything from a layer to the kernels' arguments is as on a GPU, but for what
`gpu_emulation.use` replaces: the tensors' device, and the stream.
"""

import warnings

import gpu_emulation
import keras
import numpy as np
import pytest
from descriptors import BY_NAME
from gpu_emulation import CLOSE, launches
from recurrence import MASKS, Problem, same

import keras_ln
from keras_ln import ops
from keras_ln.engine.gpu import CUDA

pytestmark = pytest.mark.kernels
x = np.ones((2, 4, 3), "float32")
EVERYTHING = {"return_sequences": True, "return_state": True}


@pytest.mark.promise("no switch, no driver, no NVRTC")
@pytest.mark.every_backend
def test_when_they_are_off(monkeypatch):
    """A sentence for each, and the next implementation runs."""
    from keras_ln_kernels import gpu

    def reason():
        return ops.implementation(keras_ln.LNLSTM(3))[1]["cuda"]

    monkeypatch.setenv("KERAS_LN_KERNELS", "0")
    assert reason() == "KERAS_LN_KERNELS=0 is set."
    monkeypatch.setenv("KERAS_LN_KERNELS", "cuda")
    wrong = "there is no CUDA driver."
    gpu_emulation.use(monkeypatch)
    monkeypatch.setenv("KERAS_LN_GPU_VERDICTS", "no such folder")
    for switch in ("", "1"):
        monkeypatch.setenv("KERAS_LN_KERNELS", switch)
        with warnings.catch_warnings():  # torch tells once.
            warnings.simplefilter("ignore")
            assert "`python -m keras_ln gpu` verifies" in reason()
    monkeypatch.setenv("KERAS_LN_KERNELS", "cuda")
    monkeypatch.setattr(gpu, "unsupported_reason", lambda: wrong)
    assert reason() == f"The GPU kernels cannot run: {wrong}"


@pytest.mark.every_backend
@pytest.mark.parametrize("name", ["LNLSTM", "LNGRU"])
def test_two_blocks(name, driver):
    """Against the loop in float64: the oracle would take long."""
    arguments = {**EVERYTHING, "units": 40}
    problem = Problem(BY_NAME[name], arguments, mask=MASKS["middle"])
    same(
        problem.run(problem.layer(dtype="float32")),
        problem.run(problem.layer(use_fused=False)),
        CLOSE,
    )
    assert len(launches(driver)) >= 2


@pytest.mark.parametrize("name", ["LNLSTM", "LNGRU"])
def test_half_precision(name, driver):
    """Operands have 8 bits, states and sums 24."""
    arguments = {**EVERYTHING, "units": 24}
    problem = Problem(BY_NAME[name], arguments, mask=MASKS["middle"])
    model = problem.layer(dtype="mixed_bfloat16")
    found = problem.run(model).gradients
    right = problem.run(problem.layer(use_fused=False)).gradients
    for weight, gradient in right.items():
        error = np.linalg.norm(np.float64(found[weight]) - gradient)
        assert error < 3e-2 * np.linalg.norm(gradient), weight
    assert len(launches(driver)) >= 2


@pytest.mark.parametrize("masked", [False, True])
def test_dropout_of_the_inputs(masked, driver):
    """Is outside of the kernels; dropout of h is for the fused op."""
    problem = Problem(
        BY_NAME["LNLSTM"],
        {**EVERYTHING, "dtype": "float32", "units": 3},
        training=True,
        mask=MASKS["left"] if masked else None,
        drops=True,
    )
    problem.dropped["recurrent_dropout_mask"][:] = 1.0
    layer = problem.layer()
    (drop, _) = layer.cell.dropout_masks()
    layer.cell.dropout_masks = lambda *_: (drop, None)
    problem.check(layer, CLOSE)
    assert len(launches(driver)) >= 2


@pytest.mark.promise("no switch, no driver, no NVRTC")
@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"activation": "relu"}, "need activation='tanh'"),
        (
            {"recurrent_activation": "linear"},
            "need recurrent_activation='sigmoid'",
        ),
        ({"dtype": "float64"}, "in float32, on tensors in float32, bfloat16,"),
        ({"groups": "gate"}, "not support groups='gate'"),
        ({"normalize": ("sum",)}, 'not support "sum" in'),
        ({"carry_normalized_state": True}, "read the setting or weight `carry"),
        ({"zoneout": 0.1}, "read the setting or weight `zoneout_share`"),
        ({"use_fused": False}, "use_fused=False"),
        ({"unroll": True}, "unroll=True"),
    ],
    ids=str,
)
def test_what_they_do_not_run(arguments, sentence, driver):
    layer = keras_ln.LNLSTM(3, **arguments)
    chosen, reasons = ops.implementation(layer)
    assert chosen != "cuda"
    assert sentence in reasons["cuda"]
    layer(x.astype(layer.compute_dtype))
    assert not launches(driver)


def test_what_arrays_they_do_not_run(driver):
    """Recurrent dropout, no rows, no steps, or too many units."""

    def refusal(layer, shape=(2, 4, 3), **more):
        spec, how = layer.as_problem()
        layer.build((2, 4, 3))
        arrays = {v.name: v.value for v in layer.weights}
        zeros = np.zeros((shape[0], layer.units), "float32")
        given = {"x": np.zeros(shape, "float32"), "initial_h": zeros}
        given |= {"initial_c": zeros, **more}
        tensor = keras.ops.convert_to_tensor
        arrays |= {n: tensor(a, dtype=a.dtype) for n, a in given.items()}
        return CUDA.refusal("cuda", spec, arrays, how)

    small = keras_ln.LNLSTM(3)
    assert refusal(small) is None
    assert refusal(small, (0, 4, 3)) == "The batch is empty."
    assert refusal(small, (2, 0, 3)) == "The sequences are empty."
    ones = np.ones((2, 3), "float32")
    assert "array `recurrent_mask`" in refusal(small, recurrent_mask=ones)
    assert "array `state_moving_mean`" in refusal(small, state_moving_mean=ones)
    wide = ones.astype("float64")
    assert "Received: float32, float64." in refusal(small, initial_h=wide)
    large = keras_ln.LNLSTM(513)
    assert refusal(large) == "units: at most 512 fit. Received: 513."
