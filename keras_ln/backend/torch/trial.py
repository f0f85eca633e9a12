"""What the check of the GPU kernels needs from torch."""

import torch

from keras_ln._keras import torch_device


def use_format(format):
    """Sets it, in a process that is for the check alone."""
    for part in (torch.backends.cudnn, torch.backends.cuda.matmul):
        part.allow_tf32 = format == "tf32"


def program(layer, x, options, cotangent=None, how=""):
    """A function that runs a layer, and waits: y, and gradients.

    `how` is "graph" for a captured CUDA graph, "beside" for products on
    another stream at the same time.
    """
    to = torch_device()
    x = torch.tensor(x, dtype=getattr(torch, layer.compute_dtype), device=to)
    options = {k: torch.tensor(v, device=to) for k, v in options.items()}
    weights = [v.value for v in layer.trainable_variables]

    def run():
        if cotangent is None:
            with torch.no_grad():
                return [layer(x, **options)]
        y = layer(x, training=True, **options)
        return [y, *torch.autograd.grad(y, [x, *weights], given.to(y.dtype))]

    if cotangent is not None:
        # Here: a captured graph takes nothing from the host.
        given = torch.tensor(cotangent, device=to)
        x.requires_grad_()
    if not x.is_cuda:
        return run
    if how == "graph":
        run = captured(run)
    square, side = torch.ones(2048, 2048, device=to), torch.cuda.Stream()

    def waited():
        if how == "beside":
            with torch.cuda.stream(side):
                for _ in range(20):
                    square @ square
        found = run()
        torch.cuda.synchronize()
        return found

    return waited


def captured(run):
    """`run` as a CUDA graph, which a call replays."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()

    def replayed(program=run):  # The graph reads its tensors.
        graph.replay()
        return found

    return replayed


def numbers(tensor):
    """In float64, of NumPy."""
    return tensor.detach().double().cpu().numpy()
