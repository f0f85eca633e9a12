"""Launches of keras-ln-kernels on JAX's GPUs, as custom calls of XLA."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning

from keras_ln.backend import gpu, native
from keras_ln.backend.jax.native import custom_call, register

# Of `jax_default_matmul_precision`; all others multiply in TF32 at most.
_FULL = {"highest", "float32", "F32_F32_F32", "TF32_TF32_F32_X3"}
_FULL |= {"BF16_BF16_F32_X6", "BF16_BF16_F32_X9"}


def _numbers():
    """The numbers of JAX's GPUs, or why it has none."""
    return _devices() or (
        f"JAX runs on {jax.default_backend()}: the GPU kernels need CUDA."
    )


@native.once
def _registered():
    from keras_ln_kernels import xla

    return xla.unsupported_reason() or register(
        {gpu.TARGET: xla.gpu_handler()}, "CUDA"
    )


reason = gpu.reason_with(_numbers, _registered)
said = functools.partial(gpu.checked, _numbers)


def plan_reason(x, cell, units, operands, training):
    shape = [n if isinstance(n, int) else None for n in x.shape[:2]]
    wanted = cell, units, operands, format_of(operands), training, shape
    return gpu.reason_of_all(_devices(), *wanted)


def call_gpu(call, arrays):
    given = [jnp.asarray(arrays[name]) for name in call.arguments]
    sizes = call.sizes({name: arrays[name].shape for name in call.arguments})
    for name, array in zip(call.arguments, given, strict=True):
        shape, dtype = call.shape(name, sizes), call.dtype_of(name)
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(
                f"{name}: expected an array of {dtype} and shape {shape}. "
                f"Received: {array.dtype}, {array.shape}."
            )
    run = functools.partial(_run, call)
    if _partitions():
        run = _by_rows(call, run)
    return dict(zip(call.results, run(*given), strict=True))


def _partitions():
    """Whether XLA cuts the arrays of a call by our rule.

    The partitioner before Shardy takes no such rule, and gathers them on every
    device. In jax.shard_map each device has its rows already.
    """
    if not getattr(jax.config, "jax_use_shardy_partitioner", False):
        return False
    return not jax.sharding.get_abstract_mesh().manual_axes


def _by_rows(call, run):
    """`run`, for arrays whose batch is spread over devices: rows are apart."""
    arguments, results = (
        [call.axes(name) for name in names]
        for names in (call.arguments, call.results)
    )

    def partition(mesh, given, made):
        rows = given[0].sharding.spec[:1]  # of zx

        def spread(every):
            specs = [jax.P(*rows) if "B" in a else jax.P() for a in every]
            return tuple(jax.sharding.NamedSharding(mesh, s) for s in specs)

        return mesh, run, spread(results), spread(arguments)

    rule = " -> ".join(
        ", ".join(" ".join(axes) for axes in every)
        for every in (arguments, results)
    )
    whole = dict.fromkeys("".join([*arguments, *results]).replace("B", ""))
    partitioned = custom_partitioning(run)
    partitioned.def_partition(
        partition, sharding_rule=rule, need_replication_factors=(*whole,)
    )
    return jax.custom_batching.sequential_vmap(partitioned)


def _run(call, *given):
    """The results of a launch, on the device of its arrays."""
    from keras_ln_kernels import xla

    sizes = call.sizes(
        {n: a.shape for n, a in zip(call.arguments, given, strict=True)}
    )
    # Of a batch spread over devices, for the part that is here; of one whose
    # size a program is exported without, as for one row.
    batch = sizes.batch if isinstance(sizes.batch, int) else None
    asked = _devices(), call, sizes.units, format_of(call.operands), batch
    plan, space = gpu.planned(*asked)
    if isinstance(plan, str):
        raise RuntimeError(plan)
    wanted = [(call.shape(n, sizes), call.dtype_of(n)) for n in call.results]
    wanted += [((size,), "uint8") for size in space.values()]
    attributes = xla.gpu_attributes(call, plan)
    results = custom_call(gpu.TARGET, attributes, given, wanted)
    return tuple(results[: len(call.results)])


def format_of(operands):
    """The format of a product's operands, as in JAX's products."""
    if operands != "float32":
        return operands
    asked = str(jax.config.jax_default_matmul_precision)
    return "3xtf32" if asked in _FULL else "tf32"


def _devices():
    """The driver's numbers of JAX's GPUs; none if programs run elsewhere.

    A program is compiled for all of them.
    """
    if jax.default_backend() != "gpu":
        return ()
    return tuple(device.local_hardware_id for device in jax.local_devices())
