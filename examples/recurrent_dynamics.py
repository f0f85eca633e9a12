"""Hidden-to-hidden dynamics over many steps: section 3.1 of the paper.

Recurrent layers with and without layer normalisation, whose recurrent weights
are orthogonal matrices times a scale, run over random inputs. The paper's
claim: the states and gradients of plain layers grow or shrink with the scale;
those in layer-normalised layers are stable.
"""

import itertools
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from common import ending, files, report, studies

CELLS = ("RNN", "GRU", "LSTM")
KINDS = ("plain", "layer")
FEATURES = 8
SCALES = {0.5: "#56B4E9", 1.0: "#009E73", 2.0: "#E69F00", 4.0: "#D55E00"}
QUANTITIES = {
    "state": "state",
    "summed_inputs": "summed inputs",
    "gradient": "gradient of the last state",
}
# Float32 has no digits left below it.
SMALLEST = 1e-30


def build_model(cell: str, kind: str, scale: float, units: int, seed: int):
    """A layer for inputs (B, T, FEATURES), with recurrent weights."""
    import keras

    import keras_ln

    name = cell.replace("RNN", "SimpleRNN")
    plain = getattr(keras.layers, name)
    start = keras.initializers
    layer = (plain if kind == "plain" else getattr(keras_ln, f"LN{name}"))(
        units,
        kernel_initializer=start.GlorotUniform(seed=seed),
        recurrent_initializer=start.Orthogonal(gain=scale, seed=seed + 1),
    )
    layer.build((None, None, FEATURES))
    return layer


def growth(gradient) -> float:
    """The factor per step backwards, from a fit to log(gradient)."""
    import numpy as np

    usable = np.isfinite(gradient) & (gradient > SMALLEST)
    back = np.arange(len(gradient))[::-1][usable]
    return float(np.exp(np.polyfit(back, np.log(gradient[usable]), 1)[0]))


def spread(values: Sequence[float]) -> float:
    """The largest over the smallest, over the scales."""
    return max(values) / min(values)


def draw(found: dict, path: Path) -> None:
    """States and gradients of the first and the last kind of cell."""
    import numpy as np
    from common import plotting

    # Dashes are for kinds, colours for scales.
    dashes = {"plain": "-", "layer": "-."}
    cells, names = (CELLS[0], CELLS[-1]), ("state", "gradient")
    how = {"sharex": True, "sharey": "row"}
    figure, axes = plotting.grid(2, 2, (9, 6.5), **how)
    for (cell, kind, scale), sizes in found.items():
        if cell not in cells:
            continue
        of_cell = axes[:, cells.index(cell)]
        for axis, name in zip(of_cell, names, strict=True):
            values = getattr(sizes, name)
            axis.semilogy(
                np.arange(1, len(values) + 1),
                np.where(values > SMALLEST, values, np.nan),
                color=SCALES[scale],
                linestyle=dashes[kind],
                lw=1.2,
                label=f"{kind}, {scale:g}",
            )
            axis.set(ylabel=QUANTITIES[name], xlabel="time step")
            axis.label_outer()
            plotting.tidy(axis)
        of_cell[0].set_title(cell)
    plotting.explain(figure, axes[:1, :1], "kind, scale of the weights")
    plotting.save(figure, path, dpi=100)


def measure(args: Namespace, folder: Path) -> None:
    """Prints and writes the tables, and draws the figure."""
    import numpy as np

    from keras_ln.analysis import hidden_dynamics

    rng = np.random.default_rng(args.seed)
    x = rng.normal(size=(args.batch_size, args.steps, FEATURES))
    x = x.astype("float32")
    found, rows = {}, []
    for cell, kind, scale in itertools.product(CELLS, KINDS, SCALES):
        layer = build_model(cell, kind, scale, args.units, args.seed)
        sizes = hidden_dynamics(layer, x, seed=args.seed)
        found[cell, kind, scale] = sizes
        # The second half has forgotten the start.
        half = slice(args.steps // 2, None)
        means = (sizes.state[half], sizes.summed_inputs[half])
        means = (float(values.mean()) for values in means)
        rows.append((cell, kind, scale, *means, growth(sizes.gradient)))
    heading = ["cell", "kind", "scale", "state", "summed inputs"]
    heading.append("gradient factor")
    report.show_and_write(folder / "dynamics.csv", heading, rows)
    curves = [
        {"cell": cell, "kind": kind, "scale": scale, "step": t + 1}
        | {name: float(getattr(sizes, name)[t]) for name in QUANTITIES}
        for (cell, kind, scale), sizes in found.items()
        for t in range(args.steps)
    ]
    files.write_csv(folder / "curves.csv", curves)
    spreads = []
    for of in itertools.product(CELLS, KINDS):
        own = [row for row in rows if row[:2] == of]
        spreads.append((*of, *(spread([r[k] for r in own]) for k in (3, 5))))
    heading = ["cell", "kind", "state", "gradient factor"]
    report.show_and_write(folder / "spread.csv", heading, spreads)
    draw(found, folder / "figure.png")


SIZES = {
    "steps": ("time steps of an input", 500, 12),
    "batch_size": ("inputs in the batch", 8, 2),
    "units": ("size of every layer", 64, 6),
}


def main(argv=None):
    # A rate of growth needs two steps. A normalised layer of one unit has no
    # variance, and no gradient.
    args = studies.parse(
        __file__, __doc__, SIZES, argv, least={"steps": 2, "units": 2}
    )
    with studies.folder(args) as folder:
        measure(args, folder)
    return 0


if __name__ == "__main__":
    ending.execute(main)
