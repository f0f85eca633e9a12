"""Errors of float32, float16 and bfloat16 against float64, layer by layer.

    python -m benchmarks.precision

runs each layer with the same random weights and inputs in float64 and in the
other three, forwards and backwards, prints the differences of outputs and of
gradients, and writes benchmarks/results/precision_BACKEND.csv. In half
precision the weights stay in float32 (`mixed_float16`, `mixed_bfloat16`).

Differences are divided by the root mean square of the float64 result. Among
the gradients of the input and the weights, the largest difference is shown.
"""

import numpy as np

from benchmarks import harness, report

B, T, D, U = 16, 32, 32, 64
POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
LAYERS = {
    "LayerNormalization": {},
    "BatchNormalization": {},
    "RecurrentBatchNorm": {"max_steps": T},
    "WeightNormDense": {"units": U},
    "LNSimpleRNN": {"units": U},
    "LNGRU": {"units": U},
    "LNLSTM": {"units": U},
    "BNLSTM": {"units": U, "max_steps": T},
    "WNLSTM": {"units": U},
}


def outputs_and_gradients(name, dtype, shape):
    """(outputs, {argument: gradient}) as float64 arrays."""
    import keras

    import keras_ln

    arguments = dict(LAYERS[name])
    if "units" in arguments and name != "WeightNormDense":
        arguments["return_sequences"] = True
    layer = getattr(keras_ln, name)(dtype=dtype, **arguments)
    layer.build(shape)
    rng = np.random.default_rng(0)
    for variable in layer.weights:
        noise = rng.normal(size=tuple(variable.shape))
        if "kernel" in variable.name and noise.ndim == 2:
            value = noise / np.sqrt(noise.shape[0])
        elif variable.name.endswith("variance"):
            value = np.exp(0.3 * noise)
        elif variable.name.endswith(("gamma", "_g")) or variable.name == "g":
            value = 1.0 + 0.1 * noise
        else:
            value = 0.1 * noise
        # All dtypes hold these values exactly.
        variable.assign(np.round(value * 64) / 64)
    x = np.round(rng.normal(size=shape) * 64) / 64
    size = (*shape[:-1], arguments.get("units", shape[-1]))
    cotangent = np.round(rng.normal(size=size) * 64) / 64
    training = name in ("BatchNormalization", "RecurrentBatchNorm", "BNLSTM")
    y, gradients = differentiate(layer, x, cotangent, training)
    to_numpy = keras.ops.convert_to_numpy
    return to_numpy(y).astype("float64"), {
        key: to_numpy(value).astype("float64")
        for key, value in gradients.items()
    }


def differentiate(layer, x, cotangent, training):
    """One call and its gradients, computed by Keras' framework."""
    import keras

    options = {"training": training} if layer._call_has_training_arg else {}
    dtype = layer.compute_dtype
    names = [v.name for v in layer.trainable_variables]

    def loss_of(y):
        weight = keras.ops.cast(cotangent, "float64")
        return keras.ops.sum(keras.ops.cast(y, "float64") * weight)

    if keras.backend.backend() == "jax":
        import jax

        def run(x, weights):
            others = [v.value for v in layer.non_trainable_variables]
            y, _ = layer.stateless_call(weights, others, x, **options)
            return loss_of(y), y

        weights = [v.value for v in layer.trainable_variables]
        gradients, y = jax.grad(run, argnums=(0, 1), has_aux=True)(
            jax.numpy.asarray(x, dtype), weights
        )
        return y, dict(
            zip(["x", *names], [gradients[0], *gradients[1]], strict=True)
        )
    if keras.backend.backend() == "torch":
        import torch

        x = torch.tensor(x, dtype=getattr(torch, dtype), requires_grad=True)
        y = layer(x, **options)
        sources = [x, *(v.value for v in layer.trainable_variables)]
        gradients = torch.autograd.grad(loss_of(y), sources)
        return y.detach(), dict(zip(["x", *names], gradients, strict=True))
    import tensorflow as tf

    x = tf.cast(x, dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, **options)
        loss = loss_of(y)
    sources = [x, *(v.value for v in layer.trainable_variables)]
    gradients = tape.gradient(loss, sources)
    return y, dict(zip(["x", *names], gradients, strict=True))


def differences(value, right):
    """RMS and maximum of the error, divided by the RMS of the right value."""
    size = np.sqrt((right**2).mean())
    error = abs(value - right) / size
    return np.sqrt((error**2).mean()), error.max()


def measured(names, sizes):
    """Rows for the CSV."""
    for name in names:
        right, gradients = outputs_and_gradients(name, "float64", sizes)
        for policy in POLICIES:
            y, found = outputs_and_gradients(name, policy, sizes)
            mean, largest = differences(y, right)
            # Not Python's max, which may lose a NaN.
            worst = np.max(
                [differences(found[k], gradients[k])[0] for k in gradients]
            )
            yield {
                "layer": name,
                "sizes": "x".join(map(str, (*sizes, U))),
                "dtype": policy.removeprefix("mixed_"),
                "output_rms": f"{mean:.1e}",
                "output_max": f"{largest:.1e}",
                "gradient_rms": f"{worst:.1e}",
            }


def main(argv=None):
    """Measure, print, write."""
    parser = harness.parser("precision", __doc__, rounds=None)
    options = parser.parse_args(argv)
    harness.set_threads(options.threads)
    import keras

    if keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
    names = list(LAYERS)[:1] if options.smoke else LAYERS
    rows = []
    for row in measured(names, (4, T, D) if options.smoke else (B, T, D)):
        print(" ".join(f"{key}={value}" for key, value in row.items()))
        rows.append(row | {"versions": harness.versions()})
    output = report.target(options, f"precision_{keras.backend.backend()}")
    report.write_csv(rows, report.file_of(output, ".csv"))


if __name__ == "__main__":
    main()
