"""The tables of "Should I use it?", as the kept results have them."""

import re

import numpy as np
from docs.measured import (
    ERROR,
    KEPT,
    ROOT,
    chosen,
    ends,
    kept_settings,
    kept_verdict,
    on_the_way,
    verdict,
)

# Result, what it ends with, decimals, what stands behind the kinds' names, and
# the held-out measure of its evaluations (minus: more is better).
EVIDENCE = {
    "sentences around a sentence, nats per word": (
        *("skip-thoughts", "test_nll", 2, "", "val_nll"),
    ),
    "pixels of digits in order, % errors": (
        *("sequential-mnist", ERROR, 1, "-order-natural", "val_loss"),
    ),
    "pixels of digits permuted, % errors": (
        *("sequential-mnist", ERROR, 1, "-order-permuted", "val_loss"),
    ),
    "captions for a picture, mean rank": (
        *("order-embeddings", "caption_mean_rank", 2, "", "-val_recall_sum"),
    ),
    "pictures for a caption, mean rank": (
        *("order-embeddings", "image_mean_rank", 2, "", "-val_recall_sum"),
    ),
    "painting digits (DRAW), nats": (
        *("draw-mnist", "test_bound_nats", 1, "", "val_loss"),
    ),
    "handwriting, nats per point": (
        *("handwriting", "test_nll", 3, "", "val_nll"),
    ),
    "dense layers on MNIST, batches of 128, % errors": (
        *(
            "permutation-invariant-mnist",
            ERROR,
            2,
            "-batch-size-128",
            "val_loss",
        ),
    ),
    "dense layers on MNIST, batches of 4, % errors": (
        *(
            "permutation-invariant-mnist-4",
            ERROR,
            2,
            "-batch-size-4",
            "val_loss",
        ),
    ),
    "dense layers on Fashion-MNIST, % errors": (
        *(
            "permutation-invariant-fashion",
            ERROR,
            1,
            "-batch-size-128",
            "val_loss",
        ),
    ),
    "convolutions on Fashion-MNIST, % errors": (
        *("convolutional-fashion", ERROR, 1, "", "val_loss"),
    ),
}


# Result, and the choices of its grid that the row is about.
SETTINGS = {
    "sentences around a sentence": ("skip-thoughts", {}),
    "pixels of digits in order": ("sequential-mnist", {"order": "natural"}),
    "pixels of digits permuted": ("sequential-mnist", {"order": "permuted"}),
    "names in a passage": ("attentive-reader", {"gain": "1.0"}),
    "captions and pictures": ("order-embeddings", {}),
    "DRAW": ("draw-mnist", {}),
    "handwriting": ("handwriting", {}),
    "dense layers, MNIST": ("permutation-invariant-mnist", {}),
    "dense layers, MNIST, batches of 4": ("permutation-invariant-mnist-4", {}),
    "dense layers, Fashion-MNIST": ("permutation-invariant-fashion", {}),
    "convolutions": ("convolutional-fashion", {}),
}


# Everyday task, what is wrong, and decimals.
EVERYDAY = {
    "addition": ("sums of two numbers, % wrong", 1),
    "characters": ("next character of a text, % wrong", 1),
    "long_memory": ("two of 200 numbers to add, RMSE", 3),
    "verses": ("which book a verse is from, % wrong", 1),
    "forecast": ("a chaotic series to foresee, RMSE", 4),
}


CELLS = {"LSTM": ("lstm", "lnlstm"), "GRU": ("gru", "lngru")}


def everyday():
    """The rows of the everyday tasks that are kept, for LSTMs and GRUs."""
    for task, (label, places) in EVERYDAY.items():
        name = f"everyday-{task}"
        if not (KEPT / name).exists():
            continue
        for cell, (plain, layer) in CELLS.items():
            means = (ends(name, "test_error", k) for k in (plain, layer))
            shown = " | ".join(f"{m.mean():.{places}f}" for m in means)
            way, end = (
                kept_verdict(name, f"{layer} {how} than {plain}")
                for how in ("is faster", "ends lower")
            )
            seeds = len(ends(name, "test_error", plain))
            yield f"| {cell}: {label} | {shown} | {seeds} | {way} | {end} |"


def evidence():
    """The table of what happened."""
    yield "| task | plain | layer norm. | seeds | on the way | at the end |"
    yield "|---|---|---|---|---|---|"
    for label, (name, column, places, behind, held_out) in EVIDENCE.items():
        kinds = [kind + behind for kind in ("none", "layer")]
        plain, layer = (ends(name, column, kind) for kind in kinds)
        way = verdict(*(on_the_way(name, held_out, kind) for kind in kinds))
        yield (
            f"| {label} | {plain.mean():.{places}f} "
            f"| {layer.mean():.{places}f} | {len(plain)} | {way} "
            f"| {verdict(plain, layer)} |"
        )
    yield from everyday()


def settings():
    """The table of what the grids chose."""
    yield "| task | rate | plain network's | gain | batch size | clipped to |"
    yield "|---|---|---|---|---|---|"
    rows = [(*row, "layer", "none") for row in SETTINGS.items()]
    for task in EVERYDAY:
        if (KEPT / f"everyday-{task}").exists():
            rows += [
                (
                    f"{task.replace('_', ' ')}, {cell}",
                    *((f"everyday-{task}", {}), layer, plain),
                )
                for cell, (plain, layer) in CELLS.items()
            ]
    for label, (name, where), layer, plain in rows:
        rates = []
        for kind in (layer, plain):
            best, tried = chosen(name, kind, where)
            rate = float(best["learning_rate"])
            rates.append(f"{rate:g}{'*' * (rate in (min(tried), max(tried)))}")
        gain = chosen(name, layer, where)[0].get("gain")
        kept = kept_settings(name)
        script = kept["comparison"]["experiment"].partition("-")[0]
        files = (ROOT / "examples").glob(f"{script}*.py")
        code = "".join(path.read_text() for path in files)
        clipped = re.search(r"clipnorm=([\d.]+)", code)
        cells = [label, *rates, f"{float(gain):g}" if gain else "not searched"]
        cells += [f"{np.ravel(kept['args']['batch_size'])[0]}"]
        cells += [f"{float(clipped[1]):g}" if clipped else "no"]
        yield f"| {' | '.join(cells)} |"
