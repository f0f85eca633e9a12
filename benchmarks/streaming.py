"""The cost of one step when inputs arrive singly and states are carried.

    python -m benchmarks.streaming

calls a layer on (B, 1, D) with the states that its last call returned, as an
agent or a keyboard does, prints the time of one call and adds it to
docs/data/speed.csv. TensorFlow calls a `tf.function`, JAX
a jitted function, torch the layer itself.
"""

import importlib.util

import numpy as np

from benchmarks import baselines, harness, report, settings
from benchmarks.keras_programs import without_kernels

CALLS = 100


def programs(options, size):
    """{provider: program}, keras_ln first."""
    import keras

    import keras_ln

    x = np.ones(size[:3], "float32")

    def of(layer_class):
        layer = layer_class(size.units, return_state=True)
        layer.build(x.shape)
        call = _compiled(layer)
        zeros = keras.ops.zeros((size.batch, size.units))
        return harness.after_products(
            keras.ops.ones(harness.SQUARE),
            _steps(call, keras.ops.convert_to_tensor(x), (zeros, zeros)),
        )

    backend = keras.backend.backend()
    found = {}
    if keras_ln.ops.implementation(keras_ln.LNLSTM(4))[0] == "native":
        found[f"keras_ln (kernels), {backend}"] = lambda: of(keras_ln.LNLSTM)
    found |= without_kernels(
        {f"keras_ln, {backend}": lambda: of(keras_ln.LNLSTM)}
    )
    found[f"keras LSTM, {backend}"] = lambda: of(keras.layers.LSTM)
    if importlib.util.find_spec("torch"):
        found["torch LSTM"] = lambda: _torch_lstm(options, x, size.units)
    return found


def _compiled(layer):
    """`call(x, states)` at inference, in the framework's fast mode."""
    import keras

    def call(x, states):
        output, *states = layer(x, initial_state=list(states))
        return output, tuple(states)

    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(call)
    if backend == "jax":
        import jax

        return jax.jit(call)
    import torch

    return torch.no_grad()(call)


def _torch_lstm(options, x, units):
    import torch

    baselines.set_up_torch(options.threads)
    lstm = torch.nn.LSTM(x.shape[-1], units, batch_first=True)
    zeros = torch.zeros((1, len(x), units))
    return harness.after_products(
        torch.ones(harness.SQUARE),
        _steps(torch.no_grad()(lstm), torch.tensor(x), (zeros, zeros)),
    )


def _steps(call, x, states):
    def run():
        carried = states
        for _ in range(CALLS):
            output, carried = call(x, carried)
        return np.asarray(output)

    return {harness.INFERENCE: run}


def main(argv=None):
    """Measure, print, write."""
    parser = harness.parser("streaming", __doc__)
    options = parser.parse_args(argv)
    size = settings.Size(1, 1, 64, 128)
    if options.smoke:
        options.rounds, size = 1, settings.Size(1, 1, 2, 3)
    harness.set_threads(options.threads)
    import keras

    output = report.target(options)
    label = f"{'x'.join(map(str, size))}, one step"
    rows = harness.measure("LNLSTM", label, programs(options, size), options)
    for row in rows:
        for name in ("p20_ms", "p50_ms", "p80_ms"):
            row[name] = round(row[name] / CALLS, 4)
    report.print_table(rows)
    report.add(rows, f"streaming_{keras.backend.backend()}", output)


if __name__ == "__main__":
    main()
