"""The geometry of normalised models: section 5 of the paper in numbers.

Prints the measured Table 1, and shows

    - that the Fisher information is the metric of the Kullback-Leibler
      divergence, and the terms that eq. 13 omits under layer normalisation,
    - that larger weights make the steps of normalised models smaller, for all
      weights and for a single unit's weights.
"""

from argparse import Namespace
from pathlib import Path

from common import ending, files, report, studies

KINDS = (None, "batch", "weight", "layer")
FEATURES, UNITS = 5, 4


def problem(kind: str | None, examples: int, seed: int):
    """Data x (N, D) and parameters: kernel (D, U), bias (U)[, gain (U)]."""
    import numpy as np

    random = np.random.default_rng(seed)
    x = random.normal(size=(examples, FEATURES)) + 0.5
    parameters = (
        random.normal(size=(FEATURES, UNITS)),
        0.3 * random.normal(size=UNITS),
        1 + 0.2 * random.normal(size=UNITS),
    )
    return x, parameters[: 2 if kind is None else 3]


def divergences(args: Namespace) -> dict:
    """Rows of |delta|, relative error and error for every (kind, method).

    The error is |KL - 1/2 delta^T F delta| of Bernoulli units, for a change
    of all parameters in a random direction.
    """
    import numpy as np

    from keras_ln import analysis

    sizes = 10.0 ** np.linspace(-3, -0.5, args.points)
    found = {}
    for kind in KINDS:
        x, parameters = problem(kind, args.examples, args.seed)
        rng = np.random.default_rng(args.seed + 1)
        direction = [rng.normal(size=p.shape) for p in parameters]
        delta = analysis.parameter_vector(direction, kind)
        for method in ("paper", "exact") if kind == "layer" else ("exact",):
            fisher = analysis.fisher_information(
                "bernoulli", x, parameters, kind, method=method
            )
            rows = []
            for size in sizes / np.linalg.norm(delta):
                pairs = zip(parameters, direction, strict=True)
                other = [p + size * d for p, d in pairs]
                kl = analysis.kl_divergence(
                    "bernoulli", x, parameters, other, kind
                )
                metric = analysis.riemannian_metric(fisher, size * delta)
                length, error = size * np.linalg.norm(delta), abs(kl - metric)
                rows.append((length, error / kl, error))
            found[kind, method] = np.array(rows)
    return found


def steps(args: Namespace, alone: bool) -> dict:
    """Rows of a weight norm and of a step's change of outputs, for each kind.

    A step of gradient descent on the squared error. Its residuals are the same
    for every size of the weights. Scaled, changed and measured are all units,
    or the first one `alone`.
    """
    import numpy as np
    from keras import ops

    from keras_ln.ops.generalized_linear import normalized_summed_inputs
    from keras_ln.ops.jacobian import jacobian

    units = slice(0, 1) if alone else slice(None)
    found = {}
    for kind in KINDS:
        x, (kernel, *_) = problem(kind, args.examples, args.seed)
        rng = np.random.default_rng(args.seed + 2)
        residual = rng.normal(size=(args.examples, UNITS))[:, units]
        # Doubles, or floats on JAX without its 64-bit mode.
        x, residual = map(ops.convert_to_tensor, (x, residual))

        def outputs(kernel, x=x, kind=kind):
            y = normalized_summed_inputs(x, kernel, kind, 0.0)
            return y[:, units]

        def change(kernel, outputs=outputs, residual=residual):
            at = ops.convert_to_tensor(kernel)
            before = ops.stop_gradient(outputs(at))

            def loss(kernel):
                error = outputs(kernel) - before - residual
                return ops.sum(error * error) / (2 * args.examples)

            gradient = ops.convert_to_numpy(jacobian(loss, at))
            moved = kernel.copy()
            moved[:, units] -= 1e-3 * gradient[:, units]
            found = outputs(ops.convert_to_tensor(moved)) - before
            return np.abs(ops.convert_to_numpy(found)).mean()

        rows = []
        for scale in 2.0 ** np.linspace(-2, 3, args.points):
            scaled = kernel.copy()
            scaled[:, units] *= scale
            norm = np.linalg.norm(scaled[:, 0])
            rows.append((norm, change(scaled)))
        found[kind] = np.array(rows)
    return found


def slope(x, y) -> float:
    """The slope of y over x, both logarithmic."""
    import numpy as np

    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def draw(results, fishers, path: Path) -> None:
    """Draws curves, and the part of the Fisher metric that eq. 13 omits."""
    import numpy as np
    from common import plotting
    from matplotlib import pyplot as plt
    from matplotlib.colors import LogNorm

    kl, together, alone = results
    figure, axes = plt.subplots(2, 2, figsize=(9.5, 7.6), layout="constrained")
    for (kind, method), rows in kl.items():
        style = plotting.style_of(kind or "none") | {"label": kind or "none"}
        if method == "paper":
            style |= {"label": f"{kind}, eq. 13", "color": "#D55E00"}
            style["linestyle"] = ":"
        axes[0, 0].loglog(*rows.T[:2], ms=4, **style)
    axes[0, 0].set(
        title="Is 1/2 δᵀFδ the divergence?",
        xlabel="size of the change δ",
        ylabel="relative error of 1/2 δᵀFδ",
    )
    for axis, rows_of, what in (
        (axes[0, 1], together, "all weights"),
        (axes[1, 0], alone, "one unit's weights"),
    ):
        for kind, rows in rows_of.items():
            style = plotting.style_of(kind or "none")
            axis.loglog(*rows.T, label=kind or "none", ms=4, **style)
        axis.set(
            title=f"One gradient step, {what} scaled",
            xlabel="norm of the first unit's weights",
            ylabel="mean change of the outputs",
        )
    for axis in axes.flat[:3]:
        plotting.tidy(axis)
        axis.legend(frameon=False)
    paper, exact = fishers
    left_out = np.abs(exact - paper)
    scale = LogNorm(1e-4 * exact.max(), exact.max())
    axis = axes[1, 1]
    image = axis.imshow(np.maximum(left_out, scale.vmin), norm=scale)
    size = FEATURES + 2
    ticks = size * np.arange(UNITS) - 0.5
    axis.set_xticks(ticks + size / 2, [f"unit {i + 1}" for i in range(UNITS)])
    axis.set_yticks(ticks + size / 2, [f"{i + 1}" for i in range(UNITS)])
    axis.tick_params(length=0)
    for tick in ticks[1:]:
        axis.axhline(tick, color="white", lw=0.8)
        axis.axvline(tick, color="white", lw=0.8)
    axis.set_title("Terms of the layer's F that eq. 13 omits")
    figure.colorbar(image, ax=axis, label="absolute value (darkest: less)")
    plotting.save(figure, path, dpi=100)


def measure(args: Namespace, folder: Path) -> None:
    """Prints and writes the tables, and draws the figure."""
    from keras_ln import analysis

    table = analysis.invariance_table(seed=args.seed)
    print(table)
    files.write_text(folder / "table_1.txt", f"{table}\n")

    kl = divergences(args)
    report.show_and_write(
        folder / "divergence.csv",
        ["normalisation", "Fisher", "|delta|", "relative error", "order"],
        [
            (
                kind or "none",
                method,
                *map(float, rows[0, :2]),
                slope(*rows.T[::2]),
            )
            for (kind, method), rows in kl.items()
        ],
    )
    together, alone = steps(args, alone=False), steps(args, alone=True)
    report.show_and_write(
        folder / "steps.csv",
        ["normalisation", "slope, all units", "slope, one unit"],
        [
            (kind or "none", slope(*together[kind].T), slope(*alone[kind].T))
            for kind in KINDS
        ],
    )
    x, parameters = problem("layer", args.examples, args.seed)
    fishers = [
        analysis.fisher_information(
            "bernoulli", x, parameters, "layer", method=method
        )
        for method in ("paper", "exact")
    ]
    draw((kl, together, alone), fishers, folder / "figure.png")


SIZES = {
    "examples": ("inputs of the models", 64, 8),
    "points": ("points of every curve", 11, 3),
}


def main(argv=None):
    """Measures, draws and writes."""
    # A slope needs two points. A batch of two has the outputs -1 and 1, which
    # no step changes.
    args = studies.parse(
        __file__, __doc__, SIZES, argv, least={"points": 2, "examples": 3}
    )
    with studies.folder(args) as folder:
        measure(args, folder)
    return 0


if __name__ == "__main__":
    ending.execute(main)
