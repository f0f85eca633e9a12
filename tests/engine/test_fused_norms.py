"""torch's single operations for norms and gradients of activations.

Their results are those of every test of a layer on torch; here are the number
of operations, which is the time of a step, and rows without variance.
"""

import keras
import numpy as np
import pytest
import torch
from arrays import close
from backend_gradients import value_and_gradients
from descriptors import BY_NAME, randomize
from recurrence import same
from tolerances import FLOAT32
from torch.utils._python_dispatch import TorchDispatchMode

import keras_ln
from keras_ln import backend
from keras_ln.engine.spec import Spec
from keras_ln.ops.cells.lstm import LN_LSTM
from keras_ln.ops.norms.fused_norms import FusedNorms

U = 4


class Counter(TorchDispatchMode):
    """The number of operations that are not views."""

    count = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        results = op._schema.returns
        self.count += all(result.alias_info is None for result in results)
        return op(*args, **kwargs or {})


def counts(layer, steps):
    """The operations of a training step, forward and backward."""
    x = torch.ones(2, steps, 3, requires_grad=True)
    with Counter() as forward:
        y = layer(x, training=True)
    with Counter() as backward:
        y.sum().backward()
    return np.array([forward.count, backward.count])


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("LNLSTM", (12, 18)),
        ("LNGRU", (16, 33)),
        ("LNSimpleRNN", (4, 4)),
        ("WNLSTM", (9, 16)),
    ],
)
def test_operations_of_a_time_step(name, most, without_kernels):
    layer = getattr(keras_ln, name)(U, return_sequences=True)
    few, many = (counts(layer, steps) for steps in (4, 8))
    assert (many - few <= 4 * np.array(most)).all(), (many - few) / 4


@pytest.mark.parametrize(
    ("sizes", "weight", "epsilon"),
    [
        # In float32 the squares overflow of what is finite.
        ((1e20, np.nan), 1.0, 1e-5),
        ((-1e20, np.inf), 1.0, 1e-5),
        ((1.0, 1e10), 1e10, 1e-5),
        # And this is 0, or inf.
        ((0.0, 1.0), 1.0, 1e-50),
        ((0.0, 1.0), 1.0, 1e39),
    ],
)
@pytest.mark.parametrize("name", ["LNLSTM", "LNGRU", "LNSimpleRNN"])
def test_what_overflows(name, sizes, weight, epsilon, without_kernels):
    """Values and gradients are those of the loop."""
    x = np.random.default_rng(0).normal(size=(2, 3, 3))
    x = np.float32(x * np.reshape(sizes, (2, 1, 1)))
    results = []
    for use_fused in (True, False):
        layer = BY_NAME[name].make(epsilon=epsilon, use_fused=use_fused)
        layer.build(x.shape)
        randomize(layer)
        layer.cell.kernel.assign(weight * layer.cell.kernel)
        results.append(value_and_gradients(layer, x))
    same(*results, FLOAT32)


def test_transforms_take_ordinary_operations():
    reasons = []

    def noted(x):
        reasons.append(backend.trace_context({"x": x}).fused_reason)
        return x

    noted(torch.ones(2))
    torch.func.vmap(noted)(torch.ones(2))
    assert reasons == [None, "torch.func transforms ordinary operations."]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("groups", ["paper", "gate"])
def test_rows_without_variance(groups, dtype):
    """Up to rounding: their gradient is that of z - mean(z), like with 1e7."""
    rng = np.random.default_rng(0)
    spec = Spec(LN_LSTM, groups=groups, fused_norms=True)
    weights = {
        "recurrent_kernel": np.ones((U, 4 * U)),
        "recurrent_gamma": rng.normal(size=4 * U),
    }
    weights = {
        name: keras.ops.convert_to_tensor(value, dtype)
        for name, value in weights.items()
    }
    z = rng.normal(size=(2, 3, 4 * U))
    roundoff = np.finfo(dtype).eps
    for row, mean in ((z[0, 1], 0.0), (z[1, 0], 1.0), (z[1, 2], 1e7)):
        row[:] = mean * (1.0 + 2 * roundoff * rng.normal(size=4 * U))
    z[0, 0] += 3.0  # far from 0, but with variance
    segments = z.reshape(6, len(LN_LSTM.segments[groups]), -1)
    scale = 1.0 / np.sqrt(segments.var(-1, keepdims=True) + 1e-5)
    normal = (segments - segments.mean(-1, keepdims=True)) * scale
    scale[[1, 3, 5]], normal[[1, 3, 5]] = 1.0, 0.0
    z = keras.ops.convert_to_tensor(z, dtype)

    norms = FusedNorms(weights, spec, kept={})
    site = norms.site("recurrent", keras.ops.reshape(z, (6, -1)))
    kept = [
        keras.ops.reshape(norms.kept[f"recurrent_{name}"], (2, 3, -1))
        for name in ("center", "scale")
    ]
    mean, factor, levelled = (
        keras.ops.reshape(a, (6, -1)) for a in norms.factors_of_steps(z, *kept)
    )
    dy = rng.normal(size=(6, 4 * U))
    norms = FusedNorms(weights, spec, kept=norms.kept)
    site = norms.site("recurrent", levelled, (mean, factor))
    dz, found = site.vjp(keras.ops.convert_to_tensor(dy, dtype))

    g = (dy * weights["recurrent_gamma"].numpy()).reshape(normal.shape)
    along = (g * normal).mean(-1, keepdims=True)
    wanted = scale * (g - g.mean(-1, keepdims=True) - normal * along)
    tolerance = 300 * roundoff
    close(dz, wanted.reshape(dz.shape), rtol=tolerance, atol=tolerance)
    right = (dy.reshape(normal.shape) * normal).reshape(6, -1).sum(0)
    close(found["recurrent_gamma"], right, rtol=tolerance, atol=tolerance)
