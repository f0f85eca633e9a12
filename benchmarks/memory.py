"""Peak memory of a training step: our op against autodiff through a loop.

    python -m benchmarks.memory

prints, for each size, the peak memory of a step beyond weights and inputs, with
each program in a separate process, and adds it to docs/data/speed.csv. The
loops run the same cell, differentiated by the framework: our loop,
`keras.layers.RNN`, and JAX' scan.
"""

import argparse
import ctypes
import gc
import json
import pathlib
import subprocess
import sys

from benchmarks import harness, report, sequence_layers, settings

PROVIDERS = (
    "keras_ln",
    "cell loop of keras_ln",
    "cell in keras.layers.RNN",
    "LN scan with autodiff",
)


def peaks(arguments):
    """{mode: MB} of one program, measured in a separate process."""
    command = [sys.executable, "-m", "benchmarks.memory", *arguments]
    run = subprocess.run(
        command, cwd=harness.ROOT, capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])


def print_peaks(program):
    """In a child process: {mode: MB} above weights and inputs.

    They include the compiled program, but not the memory for compiling it.
    """
    steps = program()
    gc.collect()
    before = memory_now()
    found = None
    if before is not None:
        # Allocators keep freed memory: the mode that needs less comes first.
        order = harness.MODES[::-1]
        found = {mode: _peak_of(steps[mode]) - before for mode in order}
        found = {mode: round(peak, 1) for mode, peak in found.items()}
    print(json.dumps(found))


def memory_now():
    """MB in use, or None if the system does not say."""
    return _gpu_memory("now") if harness.on_gpu() else harness.resident("VmRSS")


def _peak_of(step):
    step()
    if harness.on_gpu():
        return _gpu_memory("peak")
    gc.collect()
    # The step would reuse memory that compiling has left, and not show it.
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    step()
    step()
    return harness.resident("VmHWM")


def _gpu_memory(kind):
    """MB in use on the GPU, now or at the peak so far."""
    total = 0
    if "jax" in sys.modules:
        stats = sys.modules["jax"].local_devices()[0].memory_stats() or {}
        name = {"now": "bytes_in_use", "peak": "peak_bytes_in_use"}[kind]
        total += stats.get(name, 0)
    if "torch" in sys.modules:
        cuda = sys.modules["torch"].cuda
        now, peak = cuda.memory_allocated, cuda.max_memory_allocated
        total += {"now": now, "peak": peak}[kind]()
    return total / 2**20


def measured(options, arguments):
    """Rows for the CSV, by size; each has its ratio to the first."""
    for text in options.sizes:
        ours = None
        for provider in sequence_layers.chosen(
            options, settings.parse_size(text)
        ):
            found = peaks([*arguments, "--sizes", text, "--of", provider])
            if found is None:
                sys.exit("This machine does not report peak memory.")
            peak = found[harness.TRAINING]
            ours = peak if ours is None else ours
            # Of tiny sizes the system may count nothing, or less than before.
            ratio = f"{ours / peak:.2f}" if min(ours, peak) > 0 else "none"
            name = sequence_layers.label(options, text)
            print(
                f"{name:32} {provider:42} {peak:9.1f} MB  ours/this {ratio}",
                flush=True,
            )
            yield {
                "op": settings.LAYERS[options.layer].ours,
                "provider": provider,
                "mode": harness.TRAINING,
                "sizes": name,
                "peak_memory_mb": peak,
                "device": harness.device(options.threads),
                "versions": harness.versions(),
            }


def main(argv=None):
    """Measure, print, write."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = harness.parser("memory", __doc__, rounds=None)
    sequence_layers.add_options(parser)
    parser.add_argument("--of", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.smoke:
        options.sizes = ["3,4,2,5"]
    harness.set_threads(options.threads)
    if options.of:
        size = settings.parse_size(options.sizes[0])
        print_peaks(sequence_layers.programs(options, size)[options.of])
        return
    options.providers = options.providers or PROVIDERS
    import keras

    output = report.target(options)
    rows = list(measured(options, arguments))
    run = f"memory_{keras.backend.backend()}"
    if any("(kernels)" in row["provider"] for row in rows):
        run = run.replace("memory", "memory_kernels")
    report.add(rows, run, output)


if __name__ == "__main__":
    main()
