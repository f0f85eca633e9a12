"""Kernels per time step on a TPU v5e, without one.

XLA compiles for a chip that this machine does not have. The optimised program
shows which kernels (fusions) a time step launches, forward, backward and at
inference, for every fused op. One command installs the requirements in a
separate environment beside a checkout:

    python3 -m venv .venv-tpu && .venv-tpu/bin/pip install jax==0.10.2
        libtpu==0.0.51 "keras>=3.15,<3.16"

    .venv-tpu/bin/python -m benchmarks.tpu_kernels
"""

import argparse
import functools
import os
import re
from typing import NamedTuple

from benchmarks import harness, report, settings

# So that XLA compiles for a chip without having it.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "KERAS_BACKEND": "jax",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
}
COLUMNS = ["op", "phase", "sizes", "kernels_per_step"]
COLUMNS += ["results_on_chip", "kernels_outside", "versions"]
OPS = ("LNLSTM", "LNGRU", "LNSimpleRNN", "BNLSTM", "WNLSTM", "plain LSTM")
OPS += ("LN scan with autodiff",)
# Names for existing memory, ends of operations that began before, transfers.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}
FREE |= {"after-all", "copy-done", "slice-done", "async-update", "async-done"}
FREE |= {"copy-start", "slice-start", "async-start"}
CALLS = {"call", "conditional", "while"}

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\("
)
_CALLED = re.compile(
    r"(?:body|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)"
)
# A TPU computes one integer, such as a loop's counter, on its scalar core.
_SCALAR_COUNTER = re.compile(r"^(s32|u32|pred)\[\]")


class Count(NamedTuple):
    """Kernels outside of the loops over time, and in their bodies."""

    outside: list[str]
    per_step: list[str]

    @property
    def on_chip(self):
        """The kernels of a step that leave their results in on-chip memory."""
        return [kernel for kernel in self.per_step if "S(1)" in kernel]


def count(text):
    """The `Count` of an optimised module, `compiled.as_text()`.

    A TPU's loops run one step at a time.
    """
    found, entry, own = {}, None, []
    for line in text.splitlines():
        if opening := _COMPUTATION.match(line):
            own = found.setdefault(opening[2], [])
            entry = opening[2] if opening[1] else entry
        elif match := _INSTRUCTION.match(line):
            own.append((*match.groups(), line))
    counted = Count([], [])

    def walk(name, kernels):
        for own_name, kind, opcode, line in found[name]:
            if opcode in CALLS:
                for called in _CALLED.findall(line):
                    inside = opcode == "while"
                    walk(called, counted.per_step if inside else kernels)
            elif opcode not in FREE and '"AllocateBuffer"' not in line:
                if not _SCALAR_COUNTER.match(kind):
                    kernels.append(f"{own_name} {kind}")

    walk(entry, counted.outside)
    return counted


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tpu_kernels",
        description=__doc__.splitlines()[0],
    )
    parser.add_argument(
        "--sizes",
        type=settings.parse_size,
        default="B",
        help="a letter of benchmarks/README.md or B,T,D,U "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--ops",
        nargs="+",
        choices=OPS,
        default=list(OPS),
        help="layers to compile (default: all)",
    )
    harness.add_dtype(parser)
    parser.add_argument(
        "--list", action="store_true", help="name every kernel of a step"
    )
    parser.add_argument(
        "--output",
        type=harness.output,
        default=report.RESULTS / "tpu_kernels.csv",
        help="CSV file to write (default: %(default)s)",
    )
    return parser.parse_args(argv)


def target():
    """A device of the chip, to compile for."""
    from jax.experimental import topologies

    topology = topologies.get_topology_desc("v5e:2x2", platform="tpu")
    return topology.devices[0]


def functions(op, size, dtype):
    """(call(weights, x, training), weights) of one op, with JAX."""
    import keras

    import keras_ln
    from benchmarks import baselines

    batch, time, features, units = size
    if op == "LN scan with autodiff":
        return baselines.jax_scan((batch, time, features), units, False)
    own = {} if op != "plain LSTM" else {"normalize": ()}
    layer_class = getattr(keras_ln, "LNLSTM" if own else op)
    policy = dtype if dtype == "float32" else f"mixed_{dtype}"
    layer = layer_class(units, use_fused=True, dtype=policy, **own)
    layer.build((batch, time, features))
    variables = layer.trainable_variables

    def call(weights, x, training):
        mapping = list(zip(variables, weights, strict=True))
        with keras.StatelessScope(mapping):
            return layer(x, training=training)

    return call, [variable.value for variable in variables]


def compiled_phases(op, size, dtype, device):
    """Yields (phase, compiled program) of one op, for `device`."""
    import jax

    # The compiling machine is not the target.
    jax.default_backend = lambda: device.platform
    call, weights = functions(op, size, dtype)
    where = jax.sharding.SingleDeviceSharding(device)

    def specs(tree):
        return jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=where),
            tree,
        )

    def forward(weights, x):
        return jax.vjp(functools.partial(call, training=True), weights, x)

    def backward(pull_back, cotangent):
        return pull_back(cotangent)

    def inference(weights, x):
        return call(weights, x, False)

    x = jax.ShapeDtypeStruct(size[:3], dtype)
    y, pull_back = jax.eval_shape(forward, weights, x)
    arguments = {
        forward: (weights, x),
        backward: (pull_back, y),
        inference: (weights, x),
    }
    for function, own in arguments.items():
        lowered = jax.jit(function).lower(*specs(own))
        yield function.__name__, lowered.compile()


def main(argv=None):
    """Compile, count, print, write."""
    options = parse(argv)
    os.environ |= ENVIRONMENT
    device, rows = target(), []
    for op in options.ops:
        programs = compiled_phases(op, options.sizes, options.dtype, device)
        for phase, compiled in programs:
            found = count(compiled.as_text())
            values = [op, phase, ",".join(map(str, options.sizes))]
            values += [len(found.per_step), len(found.on_chip)]
            values += [len(found.outside), harness.versions("libtpu")]
            rows.append(dict(zip(COLUMNS, values, strict=True)))
            print(f"{op:24} {phase:10} {len(found.per_step)} a step")
            for kernel in found.per_step if options.list else ():
                print(f"    {kernel}")
    report.write_csv(rows, options.output)


if __name__ == "__main__":
    main()
