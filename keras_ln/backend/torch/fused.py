"""What torch has as one operation, though it is several of ``keras.ops``."""

import torch

_aten = torch.ops.aten
# By activation: the gradient of its argument from that of its value y, and y.
GRADIENTS = {"tanh": _aten.tanh_backward, "sigmoid": _aten.sigmoid_backward}


def nans(tensors):
    """How many numbers are NaN.

    Other devices than CPUs would have to wait for the answer: 0.
    """
    return sum(int(one.isnan().sum()) for one in tensors if one.is_cpu)


def layer_norm(z, gamma, beta, epsilon):
    """``gamma * (z - mean) * rstd + beta``, mean and rstd (..., 1) of rows."""
    return _aten.native_layer_norm(z, gamma.shape, gamma, beta, epsilon)


def layer_norm_vjp(dy, z, gamma, mean, rstd):
    """Gradients of ``z``, of gamma, and of beta, whether there is one or not.

    It has first derivatives alone.
    """
    # It reads the statistics as if they were contiguous (torch 2.13).
    mean, rstd = mean.contiguous(), rstd.contiguous()
    return _aten.native_layer_norm_backward(
        dy, z, gamma.shape, mean, rstd, gamma, gamma, [True, True, True]
    )


multiply_add = torch.addcmul  # a + b * c


def revise(condition, function, x, *others):
    """``x``, and ``function(x, *others)`` in rows with a true condition.

    All are of shape (..., n) with the same rows. The function gets those rows
    alone on a CPU; elsewhere the program would have to wait for their number.
    """
    rows = condition.any(-1)
    if x.device.type != "cpu":
        return torch.where(rows[..., None], function(x, *others), x)
    if not rows.any():
        return x
    x = x.clone()
    x[rows] = function(x[rows], *[other[rows] for other in others])
    return x
