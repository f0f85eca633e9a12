"""Numbers and tables of the pages, from the kept tables of times."""

import configparser
import csv
import importlib.util
import json
import re
from pathlib import Path

from common.pairs import ERROR, KEPT, ends

from benchmarks import settings

ROOT = Path(__file__).resolve().parents[2]


def load(name):
    """A file of docs/, which is no package."""
    path = ROOT / "docs" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TIMES = ROOT / "benchmarks" / "results"
figures = load("figures.py")
SIZES = figures.SIZES
NAMES = figures.BACKENDS
LABEL = dict(zip(SIZES, figures.LABELS, strict=True))
USUAL = (*SIZES[:3], SIZES[4])


def table(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def both(values, digits=2):
    """The least and the greatest, as a page says them."""
    values = list(values)
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def percent(values):
    return f"{100 * min(values):.0f} to {100 * max(values):.0f} %"


def mean(name, column, kind, digits=1):
    return f"{ends(name, column, kind).mean():.{digits}f}"


def chosen(name, kind, where):
    """What the grid of a kind chose, and the rates that it tried."""
    rows = [
        row
        for row in table(KEPT / name / "tuning.csv")
        if row["norm"] == kind
        and all(row[key] in (value, "") for key, value in where.items())
    ]
    (best,) = (row for row in rows if row["chosen"])
    return best, {float(row["learning_rate"]) for row in rows}


def kept_settings(name):
    return json.loads((KEPT / name / "settings.json").read_text())


def by_size(title, rows):
    """A table with a column for each of the benchmark's sizes."""
    yield f"| {title} | {' | '.join(figures.LABELS)} |"
    yield f"|{'---|' * (1 + len(SIZES))}"
    for label, values in rows.items():
        cells = [f"{v:.0f}" if v >= 10 else f"{v:.2f}" for v in values]
        cells += [""] * (len(SIZES) - len(cells))
        yield f"| {label} | {' | '.join(cells)} |"


def inference():
    rows = {}
    for backend, name in NAMES.items():
        for label, kernels in (("with kernels", True), ("without", False)):
            values = figures.shares(backend, kernels, "inference")
            rows[f"{name} {label}"] = values
    return by_size("inference", rows)


def over_torch(kernels, mode="training step"):
    """LNLSTM's shares of the time of torch.nn.LSTM, by size."""
    own = f"keras_ln{' (kernels)' * kernels}, torch"
    times = [figures.times("torch", mode, size) for size in SIZES]
    return [
        by_provider[own] / by_provider["torch LSTM"] for by_provider in times
    ]


def of_torch():
    """LNLSTM's time over torch.nn.LSTM's."""
    rows = {
        f"{mode} {label}": over_torch(kernels, mode)
        for mode in ("training step", "inference")
        for label, kernels in (("with kernels", True), ("without", False))
    }
    return by_size("torch", rows)


def on_gpu(layer="LNLSTM", mode="training step", other="keras", sizes="ABCD"):
    """A layer's share of a plain one's time on a GPU, by size."""
    for size in sizes:
        times = figures.times("jax_gpu", mode, size, layer)
        plain = f"{other} {layer.removeprefix('LN')}"
        (theirs,) = (t for n, t in times.items() if n.startswith(plain))
        yield times["keras_ln, jax"] / theirs


def gru():
    """LNGRU's shares of the time of Keras' GRU, with kernels."""
    yield "| `LNGRU`, by `keras.layers.GRU` | A | B | C |"
    yield f"|{'---|' * 4}"
    for backend, name in NAMES.items():
        cells = [name]
        for size in "ABC":
            times = figures.times(backend, "training step", size, "LNGRU")
            (ours,) = (t for n, t in times.items() if "(kernels)" in n)
            plain = (t for n, t in times.items() if n.startswith("keras GRU"))
            cells.append(f"{ours / min(plain):.2f}")
        yield f"| {' | '.join(cells)} |"


def gpu():
    """The GPU's table."""
    yield "| on an H200, JAX | A | B | C | D |"
    yield f"|{'---|' * 5}"
    for layer, sizes in (("LNLSTM", "ABCD"), ("LNGRU", "ABC")):
        for mode in ("training step", "inference"):
            for other, module in (("keras", "layers"), ("torch", "nn")):
                shares = on_gpu(layer, mode, other, sizes)
                cells = [f"{share:.2f}" for share in shares]
                row = " | ".join([*cells, *[""] * (4 - len(cells))])
                plain = f"{other}.{module}.{layer.removeprefix('LN')}"
                yield f"| `{layer}`, {mode}, by `{plain}` | {row} |"


def timed(layer, backend, mode, sizes="ABCDSEFG", every_step=False):
    """The times of all providers, and ours divided by each of them."""
    columns = [
        figures.times(backend, mode, size, layer, every_step) for size in sizes
    ]
    loss = ", a loss on every step" if every_step else ""
    title = f"{layer}{loss}, {NAMES.get(backend, 'JAX on an H200')}, {mode}"
    yield f"| {title} | {' | '.join(sizes)} |"
    yield f"|{'---|' * (1 + len(sizes))}"
    for provider in columns[0]:
        cells = [provider.replace(f", {backend.partition('_')[0]}", "")]
        for times in columns:
            ours, time = next(iter(times.values())), times.get(provider)
            cells.append(
                f"{time:.{int(time < 10)}f} ({ours / time:.2f})" if time else ""
            )
        yield f"| {' | '.join(cells)} |"


def streaming():
    """One step of a stream: ours with kernels, and a plain LSTM."""
    yield "| one step, ms | `LNLSTM` with kernels | `keras.layers.LSTM` |"
    yield "|---|---|---|"
    for backend, name in NAMES.items():
        times = {
            row["provider"]: float(row["p50_ms"])
            for row in table(TIMES / f"streaming_{backend}.csv")
            if row["op"] == "LNLSTM"
        }
        ours = times[f"keras_ln (kernels), {backend}"]
        plain = times[f"keras LSTM, {backend}"]
        yield f"| {name} | {ours:.2g} | {plain:.2g} |"


def own_cell():
    """How much longer Keras' loop over our cell takes on TensorFlow."""
    for size in USUAL:
        times = figures.times("tensorflow", "training step", size)
        loop = [t for n, t in times.items() if n.startswith("cell in")]
        yield min(loop) / times["keras_ln (kernels), tensorflow graph"]


def plain_models(backend, mode="training step", other="keras,"):
    """Times of models by with_fast_rnn, with the kernels, over others'."""
    found = {}
    for row in table(TIMES / f"plain_models_{backend}.csv"):
        if row["mode"] == mode:
            times = found.setdefault(row["op"], {})
            times[row["provider"]] = float(row["p50_ms"])
    for model, times in found.items():
        ours = [t for name, t in times.items() if "(kernels)" in name]
        theirs = [t for name, t in times.items() if name.startswith(other)]
        found[model] = min(ours) / min(theirs)
    return found


def models():
    """The table of plain models."""
    yield "| training (inference) | TensorFlow | JAX | torch | by `torch.nn` |"
    yield f"|{'---|' * 5}"
    compared = [*((backend, "keras,") for backend in NAMES), ("torch", "torch")]
    columns = [
        [
            plain_models(b, mode, other)
            for mode in ("training step", "inference")
        ]
        for b, other in compared
    ]
    for model in columns[0][0]:
        cells = [f"{t[model]:.2f} ({i[model]:.2f})" for t, i in columns]
        yield f"| {model} | {' | '.join(cells)} |"


def memory(path, backends, provider):
    return [
        float(row["ours_to_this"])
        for backend in backends
        for row in table(TIMES / f"{path}_{backend}.csv")
        if row["provider"].startswith(provider)
    ]


def usual(mode="training step"):
    """Least and greatest share of a plain LSTM's time with kernels."""
    return both(x for name in NAMES for x in figures.shares(name, True, mode))


def in_short():
    """The README's table of training times, by size."""
    keras, torch = "`keras.layers.LSTM`", "`torch.nn.LSTM`"
    rows = {
        f"CPU, {name} with kernels, vs. {keras}": figures.shares(backend, True)
        for backend, name in NAMES.items()
    }
    for label, kernels in (("with", True), ("without", False)):
        row = f"CPU, torch {label} kernels, vs. {torch}"
        rows[row] = over_torch(kernels)
    rows[f"H200 GPU, JAX, vs. {keras} in cuDNN"] = on_gpu()
    heading, line, *shares = by_size("a training step", rows)
    sizes = (", ".join(map(str, settings.SIZES[size])) for size in SIZES)
    means = "batch, steps, features, units"
    yield from (heading, line, f"| {means} | {' | '.join(sizes)} |", *shares)


def sizes():
    """The table of the benchmark's sizes."""
    yield "| size | batch | steps | features | units |"
    yield "|---|---|---|---|---|"
    for size, label in LABEL.items():
        numbers = map(str, settings.SIZES[size])
        yield f"| {label} | {' | '.join(numbers)} |"


def digits(order, kind):
    return mean("sequential-mnist", ERROR, f"{kind}-order-{order}")


def floor(name, label):
    (value,) = (
        value
        for f in kept_settings(name)["comparison"]["floors"]
        if label in f["label"]
        for key, value in f["metrics"].items()
        if "error" in key
    )
    return f"{value:.1f}"


def bound(rate, gain):
    (row,) = (
        row
        for row in table(KEPT / "draw-mnist" / "tuning.csv")
        if row["norm"] == "layer"
        and (float(row["learning_rate"]), float(row["gain"])) == (rate, gain)
        and not row["forget_steps"]
    )
    return float(row["held-out loss"])


def versions():
    """The oldest versions, by name."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    options, extras = setup["options"], setup["options.extras_require"]
    keras = re.search(r"keras>=([\d.]+)", options["install_requires"])[1]
    yield "Python", options["python_requires"].removeprefix(">=")
    yield "Keras", keras
    for backend, name in NAMES.items():
        yield name, extras[backend].strip().removeprefix(f"{backend}>=")
