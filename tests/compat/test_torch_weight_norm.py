"""WeightNormalization is torch's weight_norm, values and gradients."""

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND, value_and_gradients
from tolerances import FLOAT32, FLOAT64

import keras_ln

if BACKEND == "torch":
    import torch

    # Keras' layer, torch's, the inputs' shape in Keras, and the axes of
    # torch's kernel in the order of Keras'. Keras' Dense is float32 here.
    PAIRS = {
        "Dense": (
            lambda **k: keras.layers.Dense(4, **k),
            lambda **k: torch.nn.Linear(5, 4, **k),
            (3, 5),
            (1, 0),
        ),
        "Conv1D": (
            lambda **k: keras.layers.Conv1D(4, 3, strides=2, **k),
            lambda **k: torch.nn.Conv1d(5, 4, 3, stride=2, **k),
            (2, 8, 5),
            (2, 1, 0),
        ),
        "Conv2D": (
            lambda **k: keras.layers.Conv2D(4, (3, 2), groups=2, **k),
            lambda **k: torch.nn.Conv2d(6, 4, (3, 2), groups=2, **k),
            (2, 5, 4, 6),
            (2, 3, 1, 0),
        ),
    }

    def to_torch(x):
        """The inputs with the channels where torch has them."""
        axes = (0, x.ndim - 1, *range(1, x.ndim - 1))
        return torch.tensor(x.transpose(axes).copy(), requires_grad=True)

    @pytest.mark.parametrize("name", PAIRS)
    def test_torch_weight_norm(name):
        make_ours, make_theirs, shape, axes = PAIRS[name]
        theirs = torch.nn.utils.parametrizations.weight_norm(
            make_theirs(dtype=torch.float64)
        )
        ours = keras_ln.WeightNormalization(make_ours(dtype="float64"))
        ours.build(shape)
        rng = np.random.default_rng(0)
        # Of the parametrisation: original0 is g, original1 is v.
        g, v = theirs.parametrizations.weight.parameters()
        for tensor in (g, v, theirs.bias):
            tensor.data = torch.tensor(rng.normal(size=tuple(tensor.shape)))
        values = {
            "g": g.detach().numpy().reshape(-1),
            "kernel": v.detach().numpy().transpose(axes),
            "bias": theirs.bias.detach().numpy(),
        }
        for weight in ours.weights:
            weight.assign(values[weight.name])
        x = rng.normal(size=shape)
        inputs = to_torch(x)
        y = theirs(inputs)
        back = (0, *range(2, y.ndim), 1)
        expected = y.permute(back)
        cotangent = rng.normal(size=tuple(expected.shape))
        (expected * torch.tensor(cotangent)).sum().backward()
        gradients = {
            "x": inputs.grad.permute(back),
            "g": g.grad.reshape(-1),
            "kernel": v.grad.permute(axes),
            "bias": theirs.bias.grad,
        }
        result = value_and_gradients(ours, x, [cotangent])
        within = FLOAT32 if name == "Dense" else FLOAT64
        close(result.outputs[0], expected.detach(), **within)
        assert set(result.gradients) == set(gradients)
        close(result.gradients, gradients, **within)
