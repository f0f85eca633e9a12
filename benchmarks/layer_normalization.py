"""Times our LayerNormalization against Keras' and torch's.

    python -m benchmarks.layer_normalization

prints a table and adds it to docs/data/speed.csv, with a plot in
benchmarks/results. A training step is the forward pass and the gradients of the
input, gamma and beta; inference is the forward pass. The programs run in turn
(A B A B ...) in one process on the same threads.

KERAS_BACKEND chooses the framework; torch's own layer takes part if torch is
installed.
"""

import functools
import importlib.util

import numpy as np

from benchmarks import baselines, harness, keras_programs, report


def programs(options, shape):
    """{provider: program}, keras_ln first."""
    import keras

    import keras_ln

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype("float32") for _ in range(2)]
    parameters = [
        rng.normal(size=shape[1:]).astype("float32") for _ in range(2)
    ]

    def make(layer_class):
        layer = layer_class(epsilon=1e-5, dtype=options.dtype)
        layer.build(shape)
        layer.set_weights(parameters)
        return layer

    def of(name, layer_class, **modes):
        return keras_programs.layer_programs(
            name,
            functools.partial(make, layer_class),
            arrays,
            options.dtype,
            **modes,
        )

    # XLA compiles our op in graph mode too, so one mode is enough.
    found = of("keras_ln", keras_ln.LayerNormalization, modes=("graph",))
    found |= of("keras", keras.layers.LayerNormalization)
    if importlib.util.find_spec("torch"):
        found["torch nn.LayerNorm"] = lambda: _torch(
            options, arrays, parameters
        )
    return found


def _torch(options, arrays, parameters):
    import torch

    baselines.set_up_torch(options.threads)
    layer = torch.nn.LayerNorm(parameters[0].shape, eps=1e-5)
    with torch.no_grad():
        for own, value in zip(layer.parameters(), parameters, strict=True):
            own.copy_(torch.tensor(value))
    layer = layer.to(baselines.torch_device(), getattr(torch, options.dtype))
    return keras_programs.module_steps(
        lambda x, training: layer(x),
        list(layer.parameters()),
        arrays,
        options.dtype,
    )


def main(argv=None):
    """Measure, print, write."""
    parser = harness.parser("layer_normalization", __doc__, rounds=21)
    harness.add_dtype(parser)
    options = parser.parse_args(argv)
    shape = (64, 32) if options.smoke else (8192, 1024)
    harness.set_threads(options.threads)
    output = report.target(options)
    label = f"{'x'.join(map(str, shape))} {options.dtype}"
    rows = harness.measure(
        *("LayerNormalization", label, programs(options, shape), options)
    )
    report.print_table(rows)
    report.write(rows, "layer_normalization", output)


if __name__ == "__main__":
    main()
