"""The same training on one device, on several, in several processes.

    python distributed_training.py OUTPUT.npz PLACE [RANK PORT PORT]

trains in float64 and saves the weights. PLACE is one of

    one           one device
    mirrored      TensorFlow, tf.distribute.MirroredStrategy, two CPUs
    separate      the same, batch norms without synchronized=True
    multi-worker  TensorFlow, tf.distribute.MultiWorkerMirroredStrategy, two
                  processes; RANK is 0 or 1
    devices       JAX, keras.distribution.DataParallel, all devices
    processes     JAX, two processes; RANK is 0 or 1
    parallel      torch, DistributedDataParallel, two processes; RANK is 0 or 1

The devices must be there before the framework starts, hence a script.
"""

import json
import os
import sys

BATCH, EPOCHS, ROWS = 8, 2, 24


def start(place, rank, ports):
    """Makes the devices and returns the scope to build and train in."""
    import contextlib

    import keras

    if place == "one":
        return contextlib.nullcontext()
    if place in ("mirrored", "separate"):
        import tensorflow as tf

        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * 2,
        )
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        assert strategy.num_replicas_in_sync == 2
        return strategy.scope()
    if place == "multi-worker":
        cluster = {"worker": [f"localhost:{p}" for p in ports]}
        task = {"type": "worker", "index": int(rank)}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        import tensorflow as tf

        return tf.distribute.MultiWorkerMirroredStrategy().scope()
    if place == "parallel":
        import torch

        torch.distributed.init_process_group(
            "gloo",
            init_method=f"tcp://localhost:{ports[0]}",
            rank=int(rank),
            world_size=2,
        )
        return contextlib.nullcontext()
    if place == "processes":
        keras.distribution.initialize(
            job_addresses=f"localhost:{ports[0]}",
            num_processes=2,
            process_id=int(rank),
        )
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(auto_shard_dataset=False)
    )
    return contextlib.nullcontext()


def build_model(place):
    """Layers that normalise rows, and one that normalises the batch."""
    import keras

    import keras_ln

    synchronized = {"synchronized": True} if place == "mirrored" else {}
    layers = [
        keras_ln.LNLSTM(4, use_fused=True),
        keras_ln.BatchNormalization(momentum=0.5, **synchronized),
        keras.layers.Dense(1),
    ]
    if keras.backend.backend() in ("jax", "tensorflow"):
        layers.insert(0, keras_ln.LNGRU(4, return_sequences=True))
    if keras.backend.backend() == "torch":
        # There each process has batch statistics of its own, and Keras' Dense
        # computes in float32, whatever its dtype.
        layers[1:] = keras_ln.LayerNormalization(), keras_ln.WeightNormDense(1)
    if keras.backend.backend() == "jax" or place == "separate":
        # On JAX a batch is one batch, however many devices share it.
        layers.insert(-3, keras_ln.BNLSTM(4, return_sequences=True))
    return keras.Sequential([keras.Input((5, 3)), *layers])


def batches(place, rank):
    """The batches, or this process's half of each."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 5, 3))
    y = x[:, :, 0].sum(axis=1, keepdims=True)
    for _ in range(EPOCHS):
        for k in range(0, ROWS, BATCH):
            mine = slice(k, k + BATCH)
            if place in ("processes", "parallel"):
                half = BATCH // 2
                mine = slice(k + half * int(rank), k + half * (int(rank) + 1))
            yield x[mine], y[mine]


def train_in_parallel(model, data):
    """The same with tools of torch, which `fit` does not use."""
    import torch

    parallel = torch.nn.parallel.DistributedDataParallel(model)
    weights = [w for w in parallel.parameters() if w.requires_grad]
    optimizer = torch.optim.SGD(weights, 0.1)
    for x, y in data:
        optimizer.zero_grad()
        found = parallel(torch.tensor(x), training=True)
        torch.nn.functional.mse_loss(found, torch.tensor(y)).backward()
        optimizer.step()


def main(output, place, rank=0, *ports):
    """Trains and saves."""
    scope = start(place, rank, ports)
    import keras
    import numpy as np

    keras.config.set_floatx("float64")
    with scope:
        keras.utils.set_random_seed(1)
        model = build_model(place)
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        steps = {"epochs": EPOCHS, "steps_per_epoch": ROWS // BATCH}
        if place == "parallel":
            train_in_parallel(model, batches(place, rank))
        elif place == "processes" or keras.backend.backend() == "torch":
            model.fit(batches(place, rank), **steps, verbose=0)
        else:
            import tensorflow as tf

            # Not from a generator: tf.data keeps the arrays that one yields
            # without a copy, and does not keep alive what they are views of.
            parts = zip(*batches(place, rank), strict=True)
            data = tf.data.Dataset.from_tensor_slices(
                tuple(np.stack(part) for part in parts)
            )
            model.fit(data, **steps, verbose=0)
        weights = [keras.ops.convert_to_numpy(w) for w in model.weights]
    np.savez(output, *weights)


if __name__ == "__main__":
    main(*sys.argv[1:])
