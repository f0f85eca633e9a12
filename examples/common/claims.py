"""The claims of every experiment, fixed before the runs.

The primary claims of an experiment share one error rate; the other rows of its
table get no verdict. A value of `None` matches any value.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from common.measures import Claim, Measure, Table, end, mean

# The first seed of later runs, which added falling rates, longer grids and
# biases for long memory: the results of the seeds from 100 on were known.
FRESH = 200


def seeds_of(experiment: str) -> list[int]:
    """The seeds of a comparison that makes a claim."""
    table = OF.get(experiment, Table([], ("", ""), [], seeds=5))
    return [*range(table.first_seed, table.first_seed + table.seeds)]


def rows() -> Iterable[dict[str, Any]]:
    """All claims of all experiments, as they are printed."""
    for name, table in OF.items():
        for claim in table.claims:
            yield {
                "experiment": name,
                "claim": claim.text,
                "measure": claim.measure.label,
                "margin": "" if claim.margin is None else claim.margin,
                "primary": "yes" if claim.primary else "",
                "seeds": table.seeds,
                "new seeds from": table.first_seed,
            }


TEST_NLL = mean("val_loss", "test NLL")
TRAINING_NLL = mean("loss", "training NLL", log=True)
TEST_ERROR = end("test_error_percent", "test error (%)")
ORDERS = ("natural", "permuted")
ERROR_RATE = Measure(
    "mean error (%)",
    lambda run: (
        100 * (1 - statistics.fmean(row["val_accuracy"] for row in run.rows))
    ),
)
RIVALS = ("none", "batch", "batch-everywhere")
GAINS = (0.1, 1.0)
# The persons of the movements; every seed tests another person.
PERSONS = 8
# Losses, errors, and the losses to which updates are counted. The loss judges
# the end of the tasks in `AGAIN`, because it chooses settings and epoch; their
# runs from before `--decay` were judged by the error.
AGAIN = ("addition", "characters", "long_memory")
AGAIN += ("spelling", "movements", "chorales")
EVERYDAY = {
    "addition": ("NLL", "wrong sums (%)", (1.0, 0.3, 0.03)),
    "characters": ("NLL", "wrong characters (%)", (1.6, 1.45, 1.3)),
    "long_memory": ("MSE", "RMSE", (0.1, 0.01, 0.001)),
    "verses": ("NLL", "wrong books (%)", (1.8, 1.5, 1.3)),
    "forecast": ("MSE", "RMSE", (0.01, 0.001, 0.0003)),
    "spelling": ("NLL", "wrong words (%)", (0.7, 0.4, 0.3)),
    "movements": ("NLL", "wrong exercises (%)", (1.0, 0.5, 0.3)),
    "chorales": ("NLL (nats per frame)", "wrong notes (%)", (10, 9, 8.5)),
}


def _everyday(task: str, loss: str, error: str, limits: Sequence[float]):
    """Whether layer or, described only, batch normalisation helps."""
    pairs = [("lnlstm", "lstm"), ("lngru", "gru"), ("bnlstm", "lstm")]
    padded = task in ("verses", "spelling", "movements", "chorales")
    log = task in ("addition", "long_memory", "forecast")
    measures = {
        "is faster": mean("val_loss", f"test {loss}", log=log),
        "ends with a lower loss": end("test_loss", f"test {loss}"),
        "ends lower": end("test_error", error),
    }
    loss_only, error_only = list(measures)[:2], list(measures)[::2]

    def judged(shown, primary):
        return [
            Claim(
                f"{task.replace('_', ' ')}: {kind} {how} than {rival}",
                *(kind, rival, measures[how]),
                primary=kind != "bnlstm" and how in primary,
            )
            for kind, rival in pairs[: 2 if padded else 3]
            for how in shown
        ]

    earlier = judged(error_only, error_only)
    return Table(
        judged(measures, loss_only) if task in AGAIN else earlier,
        ("val_loss", f"test {loss}"),
        limits,
        seeds=PERSONS if task == "movements" else 10,
        good=limits[1],
        first_seed=FRESH if task in AGAIN else 100,
        earlier=earlier,
    )


def _layer(how: str, measure: Measure) -> Claim:
    """A primary claim of layer normalisation without a value."""
    return Claim(f"layer {how} than none", "layer", "none", measure)


OF = {
    "permutation_invariant_mnist": Table(
        [
            Claim(
                "layer is faster than batch at batch size 4",
                *("layer", "batch", TEST_NLL, 4),
            ),
            Claim(
                "layer is faster than batch at batch size 128",
                *("layer", "batch", TEST_NLL, 128),
            ),
            Claim(
                "from 128 to 4 layer loses less than batch",
                *("layer", "batch", TEST_ERROR, 4),
                base=128,
            ),
            Claim(
                "layer ends the same at 4 and at 128",
                *("layer", "layer", TEST_ERROR, 4, 128),
                margin=0.5,
            ),
            *(
                Claim(
                    f"{kind}: change from 128 to 4",
                    *(kind, kind, TEST_ERROR, 4, 128),
                    primary=False,
                )
                for kind in ("none", "batch")
            ),
            *(
                Claim(
                    f"training of layer is faster than {rival} at {size}",
                    *("layer", rival, TRAINING_NLL, size),
                    primary=False,
                )
                for rival in ("batch", "none")
                for size in (4, 128)
            ),
        ],
        ("val_loss", "test NLL"),
        (0.4, 0.2, 0.1),
        first_seed=FRESH,
    ),
    "convolutional_networks": Table(
        [
            _layer("is faster", TEST_NLL),
            *(
                Claim(
                    f"batch ends lower than {rival}",
                    *("batch", rival, end("test_nll", "test NLL")),
                )
                for rival in ("none", "layer")
            ),
            *(
                Claim(
                    f"batch is faster than {rival}",
                    *("batch", rival, TEST_NLL),
                )
                for rival in ("none", "layer")
            ),
            Claim(
                "training of layer is faster than none",
                *("layer", "none", TRAINING_NLL),
                primary=False,
            ),
        ],
        ("val_loss", "test NLL"),
        (0.5, 0.4, 0.35),
    ),
    "sequential_mnist": Table(
        [
            Claim(
                f"{kind} {how} than none, {order}",
                *(kind, "none", measure, order),
                primary=kind == "batch",
            )
            for kind in ("batch", "layer")
            for order in ORDERS
            for how, measure in (
                ("is faster", TEST_NLL),
                ("ends lower", TEST_ERROR),
            )
        ],
        ("val_loss", "test NLL"),
        (1.0, 0.5, 0.25),
    ),
    "attentive_reader": Table(
        [
            Claim(
                f"layer {how} than {rival}, gain {gain}",
                *("layer", rival, measure, gain),
            )
            for rival in RIVALS
            for gain in GAINS
            for how, measure in (
                ("is faster", ERROR_RATE),
                ("ends lower", end("validation_error_percent", "error (%)")),
            )
        ],
        ("val_loss", "NLL"),
        (2.0, 1.6, 1.3),
    ),
    "order_embeddings": Table(
        [
            _layer(
                "is faster",
                mean("val_recall_sum", "lack of recall (%)", sign=-1),
            ),
            *(
                _layer(
                    f"finds {what}s sooner",
                    end(f"{what}_mean_rank", f"mean rank of {what}s"),
                )
                for what in ("image", "caption")
            ),
        ],
        ("val_loss", "held-out loss"),
        (1000.0, 500.0, 250.0),
    ),
    "skip_thoughts": Table(
        [
            _layer(
                "is faster", mean("val_nll", "held-out NLL (nats per word)")
            ),
            _layer(
                "finds verses sooner",
                end("verses_mean_rank", "mean rank of verses"),
            ),
            _layer(
                "tells books apart better",
                Measure(
                    "lack of book accuracy (%) at the end",
                    lambda run: 100 - run.metrics["verses_book_accuracy"],
                    "verses_book_accuracy",
                ),
            ),
        ],
        ("val_nll", "held-out NLL"),
        (4.5, 4.0, 3.5),
        first_seed=FRESH,
    ),
    "draw_mnist": Table(
        [
            _layer("is faster", mean("val_loss", "test bound (nats)")),
            _layer("ends lower", end("test_bound_nats", "test bound (nats)")),
        ],
        ("val_loss", "test bound"),
        (150.0, 120.0, 105.0),
        first_seed=FRESH,
    ),
    "handwriting_generation": Table(
        [
            _layer("is faster", mean("val_nll", "test NLL (nats per point)")),
            Claim(
                "layer ends the same as none",
                *("layer", "none"),
                end("test_nll", "test NLL (nats per point)"),
                margin=0.1,
            ),
        ],
        ("val_nll", "test NLL"),
        (0.0, -1.0, -2.0),
    ),
    **{f"everyday-{k}": _everyday(k, *own) for k, own in EVERYDAY.items()},
}
