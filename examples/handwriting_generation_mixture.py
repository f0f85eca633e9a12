"""The density of the next point of a pen: a mixture of Gaussians.

Graves, "Generating Sequences With Recurrent Neural Networks" (2013), sections
4.1 and 5.3; equation numbers are his. Letters: B batch, T points, M components
of the mixture. A point is (dx, dy, end of stroke).
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable(package="keras_ln_examples")
def mixture_nll(points: Any, outputs: Any) -> Any:
    """-log density of points (B, T, 3) in nats, (B, T), eq. 23 to 26.

    Args:
        points: the offsets and, 0 or 1, the end of a stroke.
        outputs: the network's outputs (B, T, 1 + 6 M): the logit of the end,
            then for all M components logits of the weights, means of dx and of
            dy, logarithms of their deviations, and the inputs of the tanh that
            gives correlations.
    """
    end, *parts = _split(outputs)
    logits, mean_x, mean_y, log_x, log_y, raw = parts
    x, y = points[..., 0:1] - mean_x, points[..., 1:2] - mean_y
    x, y = x * ops.exp(-log_x), y * ops.exp(-log_y)
    # log(1 - tanh(r)^2) = -2 log cosh(r), without the cancellation.
    size = ops.abs(raw)
    log_cosh = size + ops.softplus(-2 * size) - math.log(2)
    z = (x * x + y * y - 2 * ops.tanh(raw) * x * y) * ops.exp(2 * log_cosh)
    log_normal = log_cosh - log_x - log_y - z / 2 - math.log(2 * math.pi)
    log_weights = ops.log_softmax(logits, axis=-1)
    offsets = ops.logsumexp(log_weights + log_normal, axis=-1)
    return ops.softplus(end) - end * points[..., 2] - offsets


@keras.saving.register_keras_serializable("keras_ln_examples", "_MixtureNLL")
class MixtureNLL(keras.losses.Loss):
    """`mixture_nll` as a loss."""

    def call(self, points, outputs):
        return mixture_nll(points, outputs)


def _split(outputs):
    components = (outputs.shape[-1] - 1) // 6
    parts = [
        outputs[..., 1 + i * components : 1 + (i + 1) * components]
        for i in range(6)
    ]
    return outputs[..., 0], *parts


def sample_point(
    outputs: np.ndarray, bias: float, random: np.random.Generator
) -> np.ndarray:
    """Draws one point (3) from outputs (1 + 6 M); eq. 61 and 62 bias it."""
    end, logits, *parts = _split(np.float64(outputs))
    logits = logits * (1 + bias)
    weights = np.exp(logits - logits.max())
    component = random.choice(len(weights), p=weights / weights.sum())
    mean_x, mean_y, log_x, log_y, raw = (part[component] for part in parts)
    one, two = random.normal(size=2)
    rho = np.tanh(raw)
    two = rho * one + np.sqrt(1 - rho * rho) * two
    x = mean_x + np.exp(log_x - bias) * one
    y = mean_y + np.exp(log_y - bias) * two
    return np.array([x, y, random.random() < 1 / (1 + np.exp(-end))])
