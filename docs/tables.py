"""Measured tables and numbers of the pages: python docs/tables.py [--check].

Pages hold calls of these functions in comments, as cogapp reads them, each with
its result below it. After a measurement the command writes the results anew;
`--check` ends with 5 if a page differs.
"""

import csv
import sys
from functools import cache
from math import exp
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from benchmarks.settings import SIZES as MEASURED  # noqa: E402 (needs sys.path)

PAGES = (
    "README.md",
    "benchmarks/README.md",
    "docs/speed.md",
    "docs/should_i_use_it.md",
)
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "torch"}
# The sizes that the short tables have.
SIZES = ("A", "B", "C", "D", "S")
LABELS = ("A", "B", "C", "D", "batch of one")
WITH = "with the CPU extension"
BOTH = ((WITH, True), ("without it", False))
TORCH = "torch LSTM"
MODES = TRAINING, INFERENCE = "training step", "inference"


def read(path):
    """The rows of a table."""
    with open(ROOT / path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def speed():
    """All measured times and memory."""
    return read("docs/data/speed.csv")


def times(backend, mode, size, layer="LNLSTM", every_step=False):
    """Median times of a layer and what it is compared with, by provider."""
    return {
        row["provider"]: float(row["p50_ms"])
        for row in speed()
        if row["run"] == f"sequence_layers_{backend}"
        and (row["op"], row["mode"]) == (layer, mode)
        and row["sizes"].split()[0] == size
        and "float32" in row["sizes"]
        and ("every step" in row["sizes"]) is every_step
        and ", sum," not in row["provider"]
    }


def least(found, start):
    """The least time of the providers that begin so."""
    return min(t for name, t in found.items() if name.startswith(start))


def shares(backend, start, other, mode=TRAINING, sizes=SIZES, layer="LNLSTM"):
    """A provider's times over the least of another's modes, by size."""
    found = [times(backend, mode, size, layer) for size in sizes]
    return [least(t, start) / least(t, other) for t in found]


def over_keras(backend, kernels=True, mode=TRAINING):
    """LNLSTM's times over a plain LSTM's in its faster mode, by size."""
    start = "keras_ln (kernels)," if kernels else "keras_ln,"
    return shares(backend, start, "keras LSTM", mode)


def over_torch(mode=TRAINING):
    """The times with the CPU extension over those of torch.nn.LSTM, by size."""
    return shares("torch", "keras_ln (kernels),", "torch LSTM", mode)


def machine():
    """The processor and its threads, as the benchmark noted them."""
    of_torch = "sequence_layers_torch"
    (device,) = {row["device"] for row in speed() if row["run"] == of_torch}
    return device


def table(*rows):
    """Prints rows of cells; the first is the heading."""
    for k, cells in enumerate(rows):
        print(f"| {' | '.join(map(str, cells))} |")
        if k == 0:
            print(f"|{'---|' * len(cells)}")


def by_size(title, rows, heading=()):
    """Prints a table with a column for each size."""
    shown = [
        (
            label,
            *(f"{v:.0f}" if v >= 10 else f"{v:.2f}" for v in values),
            *[""] * (len(SIZES) - len(values)),
        )
        for label, values in rows.items()
    ]
    table((title, *LABELS), *heading, *shown)


def interval(values, digits=2, factor=1, unit=""):
    """The least and the greatest, as a page says them."""
    values = [factor * value for value in values]
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}{unit}"


# The tables of the pages, and the numbers of their sentences.


def sizes():
    """The benchmark's sizes."""
    heading = ("size", "batch", "steps", "features", "units")
    rows = zip(LABELS, (MEASURED[size] for size in SIZES), strict=True)
    table(heading, *((label, *numbers) for label, numbers in rows))


def in_short():
    """The README's table of training times."""
    heading = [", ".join(map(str, MEASURED[size])) for size in SIZES[:3]]
    rows = []
    for backend, name in BACKENDS.items():
        cells = [f"{share:.2f}" for share in over_keras(backend)[:3]]
        if backend == "torch":
            name = "torch (divided by `torch.nn.LSTM`)"
            pairs = zip(cells, over_torch()[:3], strict=True)
            cells = [f"{cell} ({share:.2f})" for cell, share in pairs]
        rows.append((name, *cells))
    table(("", *heading), *rows)


def inference():
    """LNLSTM's times at inference, over a plain LSTM's and torch's."""
    rows = {
        f"{name} {label}": over_keras(backend, kernels, INFERENCE)
        for backend, name in BACKENDS.items()
        for label, kernels in BOTH
        if kernels or backend != "torch"
    }
    for mode in MODES:
        rows[f"`torch.nn`, {mode}, {WITH}"] = over_torch(mode)
    by_size("inference", rows)


def on_avx2():
    """LNLSTM's training steps on torch and a CPU without AVX-512."""
    run, without = "torch_avx2", "without it"
    rows = []
    for name, label, *measured in (
        ("`torch.nn`", WITH, f"{run}_extension", "keras_ln (k", TORCH),
        ("`torch.nn`", without, run, "keras_ln,", TORCH),
        ("Keras", without, run, "keras_ln,", "keras LSTM"),
    ):
        found = shares(*measured, sizes="ABC")
        rows.append((f"{name}, {label}", *(f"{share:.2f}" for share in found)))
    table(("training on torch, AVX2, by", *"ABC"), *rows)


ON_A_GPU = {
    "keras_ln (kernels)": "`LNLSTM`, GPU kernels",
    "keras_ln": "`LNLSTM`, XLA's loop",
    "keras LSTM": "`LSTM`, cuDNN",
    TORCH: "`torch.nn.LSTM`, cuDNN",
}


def gpu():
    """Times of LNLSTM on a GPU, and of cuDNN's LSTM."""
    rows = []
    for backend in ("jax", "torch"):
        found = [
            [times(f"{backend}_gpu", m, size, every_step=True) for m in MODES]
            for size in "ABC"
        ]
        for name in found[0][0]:
            label = ON_A_GPU[name.removesuffix(f", {backend}")]
            cells = [
                f"{t[name]:.1f} ({i[name]:.1f})" if t else "" for t, i in found
            ]
            rows.append((f"{BACKENDS[backend]}: {label}", *cells))
    table(("training step (inference), ms", *"ABC"), *rows)


def timed(layer, backend, own="ABCDSEFG", every_step=False):
    """The times of all providers, and ours divided by each of them."""
    for k, mode in enumerate(MODES):
        found = [times(backend, mode, size, layer, every_step) for size in own]
        loss = ", a loss on every step" if every_step else ""
        name = BACKENDS.get(backend, "JAX on an H200")
        rows = [(f"{layer}{loss}, {name}, {mode}", *own)]
        for provider in found[0]:
            cells = [provider.replace(f", {backend.partition('_')[0]}", "")]
            for by_provider in found:
                ours = next(iter(by_provider.values()))
                time = by_provider.get(provider)
                cells.append(_with_ratio(time, ours) if time else "")
            rows.append(cells)
        print("\n" * (k > 0), end="")
        table(*rows)


def _with_ratio(value, ours):
    return f"{value:.{int(value < 10)}f} ({ours / value:.2f})"


def layer_normalization():
    """Times of LayerNormalization."""
    found = {}
    for row in speed():
        if row["run"] == "layer_normalization":
            cells = found.setdefault(row["provider"], {})
            cells[row["mode"]] = float(row["p50_ms"])
    ours = next(iter(found.values()))
    rows = [
        (name, *(f"{own[m]:.1f} ({ours[m] / own[m]:.2f})" for m in MODES))
        for name, own in found.items()
    ]
    table(("provider", *MODES), *rows)


def one_step(backend):
    """Times of one step of a stream, by provider."""
    return {
        row["provider"]: float(row["p50_ms"])
        for row in speed()
        if (row["run"], row["op"]) == (f"streaming_{backend}", "LNLSTM")
    }


def streaming():
    """One step of a stream: ours with the CPU extension, and plain LSTMs."""
    starts = ("keras_ln (ker", "keras LSTM", "torch LSTM")
    rows = []
    for backend, name in BACKENDS.items():
        found = one_step(backend)
        times = (least(found, s) for s in starts[: 2 + (backend == "torch")])
        rows.append((name, *(f"{time:.2g}" for time in times)))
    rows = [row + ("",) * (4 - len(row)) for row in rows]
    names = (f"`LNLSTM` {WITH}", "`keras.layers.LSTM`", "`torch.nn.LSTM`")
    table(("one step, ms", *names), *rows)


def peaks(run):
    """{provider: {size: MB}} of training steps, ours first."""
    found = {}
    for row in speed():
        if row["run"] == run:
            own = found.setdefault(row["provider"], {})
            own[row["sizes"][0]] = float(row["peak_memory_mb"])
    return found


def memory(*runs):
    """Peak memory of training steps, and ours divided by it."""
    rows = []
    for run in runs:
        found = peaks(run)
        ours = next(iter(found.values()))
        for provider, own in found.items():
            cells = (f"{own[s]:.0f} ({ours[s] / own[s]:.2f})" for s in "ABC")
            rows.append((provider, *cells))
    table(("provider", *"ABC"), *rows)


def share_of_memory(kind, start):
    """Prints shares of the memory of the providers that begin so."""
    shown = []
    for backend in ("tensorflow", "jax"):
        found = peaks(f"{kind}_{backend}")
        ours = next(iter(found.values()))
        for provider, own in found.items():
            if provider.startswith(start):
                shown += [ours[size] / own[size] for size in own]
    print(interval(shown, 0, 100, " %"))


def kernels_per_step():
    """Kernels that a time step launches on a TPU."""
    found = {}
    for row in read("benchmarks/results/tpu_kernels.csv"):
        cells = found.setdefault(row["op"], [])
        cells.append(row["kernels_per_step"])
    heading = ("forward", "backward", INFERENCE)
    table(("op", *heading), *((op, *cells) for op, cells in found.items()))


def with_extension():
    """Prints LNLSTM's shares of a plain LSTM's time in large batches."""
    start = "keras_ln (kernels),"
    found = (shares(b, start, "keras LSTM", sizes="ABD") for b in BACKENDS)
    print(interval([share for own in found for share in own]))


def own_cell():
    """Prints how much longer Keras' loop over our cell takes."""
    own = (*SIZES[:3], SIZES[4])
    start = "keras_ln (kernels)"
    print(interval(shares("tensorflow", "cell in", start, sizes=own), 1))


def plain_models(backend, mode, other):
    """Times of models by with_fast_rnn, with the kernels, over others'."""
    found = {}
    for row in speed():
        if (row["run"], row["mode"]) == (f"plain_models_{backend}", mode):
            own = found.setdefault(row["op"], {})
            own[row["provider"]] = float(row["p50_ms"])
    return {
        model: least(own, "keras_ln (kernels)") / least(own, other)
        for model, own in found.items()
    }


def models():
    """The times of plain models."""
    others = [
        *((backend, "keras,") for backend in BACKENDS),
        ("torch", "torch"),
    ]
    columns = [[plain_models(b, m, o) for m in MODES] for b, o in others]
    rows = [
        (model, *(f"{t[model]:.2f} ({i[model]:.2f})" for t, i in columns))
        for model in columns[0][0]
    ]
    heading = (*BACKENDS.values(), "by `torch.nn`")
    table(("training (inference)", *heading), *rows)


def searched():
    """Test losses of the search's layers, over their rivals', by task."""
    cells = {}
    for row in read("examples/results/search/pairs.csv"):
        found = (exp(float(row[n])) for n in ("log ratio", "from", "to"))
        shown = "{:.3f} ({:.3f} to {:.3f})".format(*found)
        cells.setdefault(row["task"], []).append(shown)
    pairs = (f"`LN{c}` / {o}" for c in ("LSTM", "GRU") for o in (c, "outside"))
    table(("task", *pairs), *((name, *own) for name, own in cells.items()))


def main(arguments):
    """Writes or checks the pages; returns the exit status."""
    from cogapp import Cog

    cog = ["cog", "--verbosity=1", "-P", "-r", "-I", str(ROOT / "docs")]
    cog += ["-p", "from tables import *", *arguments]
    return Cog().main([*cog, *(str(ROOT / page) for page in PAGES)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
