"""Kernels per time step on an NVIDIA H200 and a TPU v5e, without either.

XLA compiles for a chip that this machine does not have. The optimised program
shows which kernels (on a TPU: fusions) a time step launches, forward, backward
and at inference, for every fused op. One command installs the requirements in
a separate environment beside a checkout:

    python3 -m venv .venv-accelerators && .venv-accelerators/bin/pip install
        jax==0.10.2 jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.10.2
        "nvidia-cuda-nvcc-cu12<13" libtpu==0.0.51 "keras>=3.15,<3.16"

    .venv-accelerators/bin/python -m benchmarks.accelerator_kernels
        --target-config h200.txtpb

The target config describes the GPU as a text of XLA's `GpuTargetConfigProto`.
Without that file the script compiles only for the TPU.
"""

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

from benchmarks import harness, hlo, report, settings

CHIPS = {"gpu": "H200", "tpu": "TPU v5e"}
COMPILERS = {
    "gpu": ("jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12"),
    "tpu": ("libtpu",),
}
PHASES = ("forward", "backward", "inference")
COLUMNS = [
    "chip",
    "op",
    "phase",
    "sizes",
    "kernels_per_step",
    "results_on_chip",
    "kernels_outside",
    "versions",
]
OPS = (
    "LNLSTM",
    "LNGRU",
    "LNSimpleRNN",
    "BNLSTM",
    "WNLSTM",
    "plain LSTM",
    "LN scan with autodiff",
)


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accelerator_kernels",
        description=__doc__.splitlines()[0],
    )
    parser.add_argument(
        "--target-config", type=pathlib.Path, help="description of the GPU"
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
        "--list", action="store_true", help="name every kernel of an iteration"
    )
    parser.add_argument(
        "--output",
        type=harness.output,
        default=report.RESULTS / "accelerator_kernels.csv",
        help="CSV file to write (default: %(default)s)",
    )
    parser.add_argument("--chip", choices=CHIPS, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def environment(chip):
    """Variables that let XLA compile for a chip without having it."""
    found = {"JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax"}
    if chip == "tpu":
        return found | {
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        }
    tools = importlib.util.find_spec("nvidia.cuda_nvcc")
    if tools is None:
        raise SystemExit(
            "The package nvidia-cuda-nvcc-cu12 is missing: "
            "benchmarks/README.md has the command that installs it."
        )
    folder = next(iter(tools.submodule_search_locations))
    return found | {
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={folder} "
        "--xla_gpu_autotune_level=0",
    }


def target(chip, target_config):
    """A device of the chip, to compile for."""
    from jax.experimental import topologies

    if chip == "tpu":
        topology = topologies.get_topology_desc("v5e:2x2", platform="tpu")
    else:
        topology = topologies.get_topology_desc(
            "h200",
            platform="cuda",
            target_config=target_config.read_text(),
            topology="1x1x1",
        )
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


def row(chip, op, phase, options, compiled):
    """One line of the CSV, and the kernels of a step."""
    size = options.sizes
    counted = hlo.count(compiled.as_text(), chip == "gpu", size.time)
    sizes = ",".join(map(str, size))
    values = [CHIPS[chip], op, phase, sizes, counted.per_step]
    # A GPU's kernels pass results on through the GPU's only memory.
    values += [counted.on_chip if chip == "tpu" else "", counted.outside]
    values += [harness.versions(*COMPILERS[chip])]
    return dict(zip(COLUMNS, values, strict=True)), counted.kernels


def print_rows(options):
    """In the child process: prints rows for one chip, as lines of JSON."""
    device = target(options.chip, options.target_config)
    size, dtype = options.sizes, options.dtype
    for op in options.ops:
        for phase, compiled in compiled_phases(op, size, dtype, device):
            line = row(options.chip, op, phase, options, compiled)
            print(json.dumps(line), flush=True)


def rows_of(chip, arguments):
    """[(row, kernels)] of one chip, from a separate process."""
    command = [sys.executable, "-m", "benchmarks.accelerator_kernels"]
    run = subprocess.run(
        [*command, *arguments, "--chip", chip],
        cwd=harness.ROOT,
        env=os.environ | environment(chip),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"{CHIPS[chip]}: {run.stderr}")
    lines = run.stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("[{")]


def print_table(rows):
    """Kernels per step: an op per line, chips and phases side by side."""
    by_key = {(r["op"], r["chip"], r["phase"]): r for r in rows}
    chips = [c for c in CHIPS.values() if any(r["chip"] == c for r in rows)]
    print(" " * 24 + "".join(f"{chip:^32}" for chip in chips))
    print(
        f"{'kernels per time step':24}"
        + "".join(f"{phase:>10}" for _ in chips for phase in PHASES)
    )
    for op in dict.fromkeys(r["op"] for r in rows):
        found = [by_key[op, chip, phase] for chip in chips for phase in PHASES]
        cells = (f"{row['kernels_per_step']:10.4g}" for row in found)
        print(f"{op:24}" + "".join(cells))


def main(argv=None):
    """Compile, count, print, write."""
    arguments = sys.argv[1:] if argv is None else argv
    options = parse(arguments)
    if options.target_config:
        # The compiling processes start in the checkout.
        options.target_config = options.target_config.resolve()
        arguments = [*arguments, "--target-config", str(options.target_config)]
    if options.chip:
        print_rows(options)
        return
    chips = [c for c in CHIPS if c != "gpu" or options.target_config]
    found = [line for chip in chips for line in rows_of(chip, arguments)]
    rows = [row for row, _ in found]
    if options.list:
        for line, kernels in found:
            print(line["chip"], line["op"], line["phase"])
            print(*(f"    {kernel}" for kernel in kernels), sep="\n")
    print_table(rows)
    report.write_csv(rows, options.output)


if __name__ == "__main__":
    main()
