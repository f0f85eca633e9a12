"""Runs haste's LayerNormLSTM or LayerNormGRU and writes down what it did.

For an environment with haste and torch: python haste_layers.py LSTM FILE, or
GRU. The file holds, in float64, the names of tensorflow_addons_cells.py, with
the weights under their own names.
"""

import sys

import numpy as np

B, T, D, U = 3, 5, 2, 4
SHAPES = {"x": (B, T, D), "state0": (1, B, U), "state1": (1, B, U)}


def main(argv):
    """Writes the case of a kind to the file that is named."""
    kind, path = argv
    # Here, as pytest imports every file to look for examples in it.
    import haste_pytorch
    import torch

    rng = np.random.default_rng(0)
    make = getattr(haste_pytorch, f"LayerNorm{kind}")
    layer = make(D, U, batch_first=True).double()
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(
                torch.tensor(0.3 + 0.5 * rng.normal(size=weight.shape))
            )
    weights = {
        f"weight_{name}": weight for name, weight in layer.named_parameters()
    }
    inputs = {
        name: torch.tensor(rng.normal(size=shape), requires_grad=True)
        for name, shape in SHAPES.items()
        if kind == "LSTM" or name != "state1"
    }
    x, *states = inputs.values()
    if kind == "LSTM":
        y, final_states = layer(x, tuple(states))
    else:
        y, *final_states = layer(x, *states)
    outputs = [y, *final_states]
    cotangents = [rng.normal(size=output.shape) for output in outputs]
    sum(
        (output * torch.tensor(cotangent)).sum()
        for output, cotangent in zip(outputs, cotangents, strict=True)
    ).backward()
    inputs |= weights
    found = {
        **inputs,
        **{f"output{k}": output for k, output in enumerate(outputs)},
        **{f"gradient_{name}": tensor.grad for name, tensor in inputs.items()},
    }
    arrays = {name: tensor.detach().numpy() for name, tensor in found.items()}
    arrays |= {f"cotangent{k}": value for k, value in enumerate(cotangents)}
    for name in arrays:
        if "state" in name or name.endswith(("output1", "output2")):
            arrays[name] = arrays[name][0]
        if name in ("cotangent1", "cotangent2"):
            arrays[name] = arrays[name][0]
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main(sys.argv[1:])
