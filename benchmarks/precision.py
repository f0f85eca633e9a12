"""Errors of float32, float16 and bfloat16 against float64, layer by layer.

    python -m benchmarks.precision

runs each layer with the same random weights and inputs in float64 and in the
other three, forwards and backwards, prints the differences of outputs and of
gradients, and adds them to benchmarks/results/precision.csv. In half
precision the weights stay in float32 (`mixed_float16`, `mixed_bfloat16`).

Differences are divided by the root mean square of the float64 result. Among
the gradients of the input and the weights, the largest difference is shown.
"""

import numpy as np

from benchmarks import harness, keras_programs, report

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
    """Outputs and a list of gradients, as float64 arrays."""
    import keras

    import keras_ln

    arguments = dict(LAYERS[name])
    if "units" in arguments and name != "WeightNormDense":
        arguments["return_sequences"] = True
    layer = getattr(keras_ln, name)(dtype=dtype, **arguments)
    layer.build(shape)
    rng = np.random.default_rng(0)

    def rounded(values):
        # All dtypes hold these values exactly.
        return np.round(values * 64) / 64

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
        variable.assign(rounded(value))
    outputs = (*shape[:-1], arguments.get("units", shape[-1]))
    arrays = [rounded(rng.normal(size=size)) for size in (shape, outputs)]
    (program,) = keras_programs.layer_programs(
        name, lambda: layer, arrays, layer.compute_dtype, modes=("graph",)
    ).values()
    y, gradients = program()[harness.TRAINING].launch()
    found = [
        keras.ops.convert_to_numpy(value).astype("float64")
        for value in (y.detach() if hasattr(y, "detach") else y, *gradients)
    ]
    return found[0], found[1:]


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
            pairs = zip(found, gradients, strict=True)
            worst = np.max([differences(*pair)[0] for pair in pairs])
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
    path, key = report.RESULTS / "precision.csv", ("run", "layer", "dtype")
    output = report.target(options, path, key)
    rows = []
    for row in measured(names, (4, T, D) if options.smoke else (B, T, D)):
        print(" ".join(f"{key}={value}" for key, value in row.items()))
        rows.append(row | {"versions": harness.versions()})
    report.add(rows, keras.backend.backend(), output, key)


if __name__ == "__main__":
    main()
