"""JAX programs for two GPUs, on a driver that emulates the kernels.

A process of its own: devices have to be there before JAX starts. Its argument
is the driver.
"""

import sys

import gpu_emulation
import jax
import keras
import numpy as np
import pytest
from descriptors import BY_NAME, randomize

from keras_ln import ops

STREAM = gpu_emulation.STREAM
AUTOMATIC, EXPLICIT = "Auto", "Explicit"
# Two groups of rows: one for each GPU.
x = np.linspace(-1.0, 1.0, 16 * 4 * 2, dtype="float32").reshape(16, 4, 2)


def mesh_of(kind):
    """Both devices."""
    kind = getattr(jax.sharding.AxisType, kind)
    return jax.make_mesh((2,), ("data",), axis_types=(kind,))


def made_of(name, **options):
    """Gradients of the weights and of x, and the weights' values."""
    layer = BY_NAME[name].make(units=3, return_sequences=True, **options)
    layer.build(x.shape)
    randomize(layer)
    variables = layer.trainable_variables

    def loss(weights, x):
        with keras.StatelessScope([*zip(variables, weights, strict=True)]):
            return (layer(x, training=True) ** 3).sum()

    return layer, jax.value_and_grad(loss, (0, 1)), [v.value for v in variables]


def spread(kind):
    """x with half of its rows on each device."""
    return jax.device_put(x, jax.NamedSharding(mesh_of(kind), jax.P("data")))


def by_shard_map(gradient, weights):
    """A program per device, with JAX's check of types."""

    def each(weights, x):
        loss, gradients = gradient(weights, x)
        return jax.lax.psum(loss, "data"), gradients

    rows, everywhere = jax.P("data"), jax.P()
    run = jax.shard_map(
        each,
        mesh=mesh_of(AUTOMATIC),
        in_specs=(everywhere, rows),
        out_specs=(everywhere, (everywhere, rows)),
    )
    return jax.jit(run)(weights, spread(AUTOMATIC))


def by_jit(gradient, weights):
    """One program, which XLA partitions: nothing but sums is exchanged."""
    run = jax.jit(gradient).lower(weights, spread(AUTOMATIC)).compile()
    text = run.as_text()
    assert "all-reduce" in text
    assert "all-gather" not in text and "all-to-all" not in text
    return run(weights, spread(AUTOMATIC))


def by_explicit_types(gradient, weights):
    """The types of a program's arrays say how they are spread."""
    with jax.sharding.set_mesh(mesh_of(EXPLICIT)):
        return jax.jit(gradient)(weights, spread(EXPLICIT))


WAYS = {"LNLSTM": (by_shard_map, by_jit, by_explicit_types), "LNGRU": (by_jit,)}


def check(found, right):
    """The same structure and numbers."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, **gpu_emulation.CLOSE)


def main(library):
    """Numbers, and what is launched on which device and stream."""
    assert len(jax.devices()) == 2
    with pytest.MonkeyPatch.context() as patch:
        driver = gpu_emulation.use_two(patch, library)

        def launches():
            return [line[:4] for line in gpu_emulation.launches(driver)]

        for name, ways in WAYS.items():
            with jax.enable_x64(True):
                _, gradient, weights = made_of(
                    name, dtype="float64", use_fused=False
                )
                right = jax.jit(gradient)(weights, x.astype("float64"))
            layer, gradient, weights = made_of(name, dtype="float32")
            for way in ways:
                driver.fake.fake_forget()
                check(jax.block_until_ready(way(gradient, weights)), right)
                one = [("cluster", STREAM, 0, 1), ("cluster", STREAM + 1, 1, 1)]
                assert sorted(launches()) == sorted(2 * one), launches()
        alone = jax.block_until_ready(layer(x))
        keras.distribution.set_distribution(keras.distribution.DataParallel())
        assert ops.implementation(layer)[0] == "cuda"
        driver.fake.fake_forget()
        check(layer(spread(AUTOMATIC)), alone)
        assert sorted(launches()) == sorted(one), launches()
        assert driver.fake.fake_contexts() == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
