"""The text of a training step that XLA has compiled for an H200.

    python tests/kernels/program_for_gpu.py LNLSTM

No GPU is needed: a driver that emulates one says how kernels are launched.
"""

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    *(str(ROOT / p) for p in ("tests/support", "tests", "")),
]

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  memory_bandwidth: 4800000000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 151397597184
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  device_address_bits: 64
  driver_version: "13.0.0"
  runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0"
  dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H200"
"""


def compiled(name, units=40):
    """The program's text."""
    import jax
    import keras

    import keras_ln
    from benchmarks import accelerator_kernels

    layer = getattr(keras_ln, name)(units, return_sequences=True)
    layer.build((16, 10, 24))
    ran = keras_ln.ops.implementation(layer)
    if ran[0] != "cuda":
        raise SystemExit(f"{name}: {ran}")
    weights = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]

    def loss(weights, x):
        y, _ = layer.stateless_call(weights, others, x, training=True)
        return keras.ops.sum(y**2)

    def step(weights, x):
        slopes = jax.grad(loss)(weights, x)
        return [w - 0.1 * s for w, s in zip(weights, slopes, strict=True)]

    with tempfile.TemporaryDirectory() as folder:
        description = Path(folder, "h200.txtpb")
        description.write_text(H200)
        device = accelerator_kernels.target("gpu", description)
    where = jax.sharding.SingleDeviceSharding(device)
    weights = [
        jax.ShapeDtypeStruct(w.shape, w.dtype, sharding=where) for w in weights
    ]
    x = jax.ShapeDtypeStruct((16, 10, 24), "float32", sharding=where)
    return jax.jit(step).lower(weights, x).compile().as_text()


def main(name):
    """Prints it."""
    from benchmarks import accelerator_kernels

    # JAX reads these when it is imported.
    os.environ.update(accelerator_kernels.environment("gpu"))
    import gpu_emulation
    import pytest

    from keras_ln import backend

    with pytest.MonkeyPatch.context() as patch:
        kept = backend.custom_vjp, backend.gpu_reason
        gpu_emulation.use(patch)
        # As on a GPU: what is registered for CUDA is the library's handler.
        patch.setattr(backend, "custom_vjp", kept[0])
        patch.setattr(backend, "gpu_reason", kept[1])
        print(compiled(name))


if __name__ == "__main__":
    main(sys.argv[1])
