"""Times the CPU kernels on torch's threads, after an operation of torch's.

    python -m benchmarks.openmp

For some ms after an operation the threads of torch's OpenMP look for more
work, on the cores that the kernels need. So an LN-LSTM takes torch's threads,
and is timed here on them and on the kernels' own threads, 10 ms after all else
("alone") and right after a product of torch ("after"), beside torch's plain
LSTM. A training step is both calls of the kernels. Prints the times and their
ratio to the time on the kernels' own threads ("alone"), with its 95 %
interval, and writes benchmarks/results/openmp.csv.
"""

import functools
import os

import numpy as np

from benchmarks import baselines, harness, keras_programs, report, scaling
from benchmarks.settings import add_sizes, parse_size

SIZES = ("A", "C", "G", "64,30,64,128")
OWN, THEIRS, RIVAL = "kernels' threads", "torch's threads", "torch LSTM"
ALONE, AFTER = "alone", "after"


def steps_of(size, options):
    """{(mode, provider, when): step}."""
    import torch
    from keras_ln_kernels.library import openmp_of

    baselines.set_up_torch(options.threads)
    found = {
        (mode, provider): functools.partial(step, options.threads, openmp)
        for mode, step in scaling.kernel_steps(size).items()
        for provider, openmp in (
            (OWN, None),
            (THEIRS, openmp_of(torch._C.__file__)),
        )
    }
    rng = np.random.default_rng(0)
    shapes = size[:3], (size.batch, size.units)
    arrays = [rng.normal(size=shape).astype("float32") for shape in shapes]
    rival = keras_programs.module_steps(
        *baselines.torch_plain("LSTM", size[:3], size.units, False, "float32"),
        arrays,
        "float32",
    )
    found |= {(mode, RIVAL): step for mode, step in rival.items()}
    return {
        (*key, when): step
        for key, own in found.items()
        for when, step in _both(own, torch.ones(harness.SQUARE)).items()
    }


def _both(step, matrix):
    """One without anything before it, and one after a product."""
    alone, after = functools.partial(step), functools.partial(step)
    return {ALONE: alone} | harness.after_products(matrix, {AFTER: after})


def measured(options):
    """Rows for the CSV, all in turn."""
    for text in options.sizes:
        size = parse_size(text)
        _, times = harness.in_turn(steps_of(size, options), options.rounds)
        for (mode, provider, when), own in times.items():
            ratio = harness.paired_ratio(own, times[mode, OWN, ALONE])
            ratio, low, high = (round(float(f), 3) for f in ratio)
            p20, p50, p80 = np.percentile(own, [20, 50, 80]).round(3)
            yield {
                "sizes": "x".join(map(str, size)) + " float32",
                "mode": mode,
                "provider": provider,
                "when": when,
                "p20_ms": p20,
                "p50_ms": p50,
                "p80_ms": p80,
                "ratio": ratio,
                "ratio_low": low,
                "ratio_high": high,
                "device": harness.device(options.threads),
                "versions": harness.versions("keras-ln-kernels"),
            }


def main(argv=None):
    """Measure, print, write."""
    parser = harness.parser("openmp", __doc__, rounds=21)
    add_sizes(parser, SIZES)
    options = parser.parse_args(argv)
    if options.smoke:
        options.sizes, options.rounds = ["3,4,2,5"], 2
    harness.set_threads(options.threads)
    os.environ.setdefault("KERAS_BACKEND", "torch")
    rows = []
    for row in measured(options):
        rows.append(row)
        print(
            f"{row['sizes']:24} {row['mode']:14} {row['provider']:17} "
            f"{row['when']:6} {row['p50_ms']:9.2f} ms ({row['p20_ms']:.2f} to "
            f"{row['p80_ms']:.2f})  {row['ratio']:.3f} ({row['ratio_low']:.3f} "
            f"to {row['ratio_high']:.3f})",
            flush=True,
        )
    output = report.target(options, "openmp")
    report.write_csv(rows, report.file_of(output, ".csv"))


if __name__ == "__main__":
    main()
