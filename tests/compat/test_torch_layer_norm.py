"""LayerNormalization is torch.nn.LayerNorm, values and gradients."""

import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND, value_and_gradients
from tolerances import FLOAT64

import keras_ln

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
