"""Recurrent networks without Keras, for comparison.

Letters: B batch, T time, D input features, U units.
"""

import functools

import numpy as np

EPSILON = 1e-5


def jax_scan(shape, units, return_sequences):
    """An LN-LSTM as `lax.scan`, which JAX differentiates: (call, weights).

    The input product and its normalisation are outside the loop.
    """
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(1)
    weights = {
        "kernel": _uniform(rng, shape[-1], 4 * units),
        "recurrent_kernel": _uniform(rng, units, 4 * units),
        "bias": np.zeros(4 * units, "float32"),
    }
    sizes = {"kernel": 4 * units, "recurrent": 4 * units, "state": units}
    for site, size in sizes.items():
        weights[f"{site}_gamma"] = np.ones(size, "float32")
        weights[f"{site}_beta"] = np.zeros(size, "float32")
    weights = jax.tree.map(jnp.asarray, weights)

    def norm(z, weights, site):
        z = z.astype("float32")
        centred = z - z.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        n = centred * jax.lax.rsqrt(variance + EPSILON)
        return n * weights[f"{site}_gamma"] + weights[f"{site}_beta"]

    def call(weights, x, training):
        x = jnp.swapaxes(x, 0, 1)
        kernel, recurrent_kernel = (
            weights[name].astype(x.dtype)
            for name in ("kernel", "recurrent_kernel")
        )
        projected = norm(x @ kernel, weights, "kernel") + weights["bias"]

        def step(carry, projected):
            h, c = carry
            z = projected + norm(h @ recurrent_kernel, weights, "recurrent")
            i, f, g, o = jnp.split(z, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(norm(c, weights, "state"))
            h = h.astype(x.dtype)
            return (h, c), h if return_sequences else None

        zeros = jnp.zeros((x.shape[1], units), x.dtype)
        init = (zeros, zeros.astype("float32"))
        # As in our loop: on a GPU every iteration adds a fixed cost.
        unroll = 4 if jax.default_backend() == "gpu" else 1
        (h, _), outputs = jax.lax.scan(step, init, projected, unroll=unroll)
        return jnp.swapaxes(outputs, 0, 1) if return_sequences else h

    return call, weights


def _uniform(rng, *shape):
    limit = (6 / sum(shape)) ** 0.5
    return rng.uniform(-limit, limit, size=shape).astype("float32")


def set_up_torch(threads):
    """Sets the number of threads, and settings that XLA has by default.

    Tiny numbers are zero: gradients vanish over long sequences, and arithmetic
    with numbers below the normal range takes many times as long. A GPU may
    round the factors of every product to TF32, as torch's LSTM does.
    """
    import torch

    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.backends.cuda.matmul.allow_tf32 = True


def torch_plain(kind, projection, shape, units, return_sequences, dtype):
    """torch's own "LSTM", "GRU" or "RNN": (call, weights)."""
    import torch

    more = {"proj_size": projection} if projection else {}
    make = getattr(torch.nn, kind)
    network = make(shape[-1], units, batch_first=True, **more)
    network = network.to(torch_device(), getattr(torch, dtype))
    # Otherwise cuDNN would copy the weights in every call.
    network.flatten_parameters()

    def call(x, training):
        outputs, _ = network(x)
        return outputs if return_sequences else outputs[:, -1]

    return call, list(network.parameters())


def torch_device():
    """The GPU if torch sees one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@functools.cache
def _scripted():
    import torch
    import torch.nn.functional as F  # noqa: N812 (torch's own name for it)

    def layer_norm_lstm(x, weights: list[torch.Tensor], return_sequences: bool):
        kernel, recurrent_kernel, bias, gx, bx, gh, bh, gc, bc = weights
        units = recurrent_kernel.shape[0]
        projected = F.layer_norm(x @ kernel, [4 * units], gx, bx) + bias
        h = torch.zeros([x.shape[0], units], dtype=x.dtype, device=x.device)
        c = torch.zeros_like(h)
        outputs = []
        for row in projected.unbind(1):
            z = row + F.layer_norm(h @ recurrent_kernel, [4 * units], gh, bh)
            i, f, g, o = z.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(F.layer_norm(c, [units], gc, bc))
            if return_sequences:
                outputs.append(h)
        return torch.stack(outputs, 1) if return_sequences else h

    return torch.jit.script(layer_norm_lstm)


def torch_script(shape, units, return_sequences, dtype):
    """An LN-LSTM as a TorchScript loop: (call, weights)."""
    import torch

    run = _scripted()
    rng = np.random.default_rng(1)
    wide = (4 * units,)
    vectors = [np.zeros(wide)]
    for size in (wide, wide, (units,)):
        vectors += [np.ones(size), np.zeros(size)]
    weights = [
        torch.tensor(
            a,
            dtype=getattr(torch, dtype),
            device=torch_device(),
            requires_grad=True,
        )
        for a in (
            _uniform(rng, shape[-1], 4 * units),
            _uniform(rng, units, 4 * units),
            *vectors,
        )
    ]

    def call(x, training):
        return run(x, weights, return_sequences)

    return call, weights
