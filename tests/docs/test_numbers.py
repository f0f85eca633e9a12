"""Numbers on the pages that people decide by are those of the kept tables."""

import re

import numpy as np
import pytest
from common import claims
from docs.measured import (
    ERROR,
    KEPT,
    NAMES,
    ROOT,
    both,
    bound,
    chosen,
    digits,
    ends,
    figures,
    floor,
    inference,
    kept_settings,
    kept_verdict,
    mean,
    memory,
    of_torch,
    on_the_way,
    own_cell,
    sizes,
    streaming,
    table,
    updates_to_plain,
    usual,
    verdict,
    versions,
)

pytestmark = pytest.mark.full


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


def on_readme():
    large = {
        mode: [f"{figures.shares(b, True, mode, ('D',))[0]:.2f}" for b in NAMES]
        for mode in ("training step", "inference")
    }
    yield from (*sizes(), *versions(), updates_to_plain())
    yield f"`LNLSTM` made {digits('permuted', 'layer')} % errors"
    yield f"a plain LSTM {digits('permuted', 'none')} %"
    tensorflow, jax, torch = large["training step"]
    yield f"takes {tensorflow} (TensorFlow), {jax} (JAX) and {torch} (torch)"
    tensorflow, jax, torch = large["inference"]
    yield f"inference {tensorflow}, {jax} and {torch} times"


def on_index():
    yield from list(versions())[:2]
    yield (
        f"it ends with {digits('natural', 'layer')} % errors, the LSTM with "
        f"{digits('natural', 'none')} %"
    )
    yield (
        f"{digits('permuted', 'layer')} against {digits('permuted', 'none')} %"
    )
    tuned = kept_settings("sequential-mnist")["args"]["tune_epochs"]
    yield f"judged after {tuned} epochs"
    chance = float(floor("sequential-mnist", "chance"))
    yield f"chance ({chance:g} %)"


def on_performance():
    units = int(sizes()[3].split()[3])
    yield from (*sizes(), *inference(), *of_torch(), streaming())
    yield f"takes {both(usual())} of a plain LSTM's time"
    yield f"{both(own_cell(), 1)} times as long"
    loops = memory("memory", ("tensorflow", "jax"), "cell")
    yield f"needs {both(loops)} of what"
    kernels = memory("memory_kernels", ("tensorflow", "jax"), "keras_ln,")
    yield f"cut this to {100 * min(kernels):.0f} to {100 * max(kernels):.0f} %"
    yield f"take {4 * 4 * units**2 / 1e6:.0f} MB"


def good(task, kind):
    """How many of the nine points of the first grid learn well."""
    args = kept_settings(f"everyday-{task}")["args"]
    rates = [args["learning_rate"] * factor for factor in (0.3, 1, 3)]
    starts = {"scale": (0.3, 1, 3), "gain": (0.1, 0.3, 1)}
    losses = [
        float(row["held-out loss"])
        for row in table(KEPT / f"everyday-{task}" / "tuning.csv")
        if row["norm"] == kind
        and np.isclose(float(row["learning_rate"]), rates).any()
        and any(row[k] and float(row[k]) in v for k, v in starts.items())
    ]
    assert len(losses) == 9
    return sum(x <= claims.OF[f"everyday-{task}"].good for x in losses)


def on_should_i_use_it():
    yield from (*evidence(), *settings())
    reader = "attentive-reader"
    percent = "validation_error_percent"
    yield f"errors of {mean(reader, percent, 'none')} %"
    for gain in ("0.1", "1.0"):
        yield f"has {mean(reader, percent, f'layer-gain-{gain}', 0)} %"
    yield f"gives {floor(reader, 'most frequent name')} %"
    words = floor("everyday-verses", "logistic regression of 10,000")
    yield f"with {words} % errors"
    yield (
        f"{good('characters', 'lnlstm')} (`LNLSTM`) and "
        f"{good('characters', 'lngru')} (`LNGRU`) of nine learning rates"
    )
    yield f"{good('characters', 'lstm')} (LSTM) and"
    yield f"{good('characters', 'gru')} (GRU) without it"
    yield f"after {kept_settings(reader)['args']['tune_epochs']} epochs"
    (same,) = (
        row
        for row in table(KEPT / "handwriting" / "verdicts.csv")
        if row["verdict"] == "equivalent"
    )
    yield f"within {float(same['margin']):g} nats"
    yield (
        f"after {kept_settings('draw-mnist')['args']['tune_epochs']} epochs is "
        f"{bound(0.003, 0.3):.1f} with 0.3 and "
        f"{bound(0.003, 1):.1f} with 1"
    )
    four = [
        mean("permutation-invariant-mnist-4", ERROR, f"{k}-batch-size-4", 2)
        for k in ("layer", "batch", "none")
    ]
    layer, batch, none = four
    yield f"batches of 4 dense layers make {layer} % errors with layer"
    yield f"and {batch} % with batch"
    yield f"({none} % with none)"
    (gain,) = {
        chosen("sequential-mnist", "batch", {"order": order})[0]["gain"]
        for order in ("natural", "permuted")
    }
    yield f"`BNLSTM` wants less: {gain} for digits"
    batch = [
        ends(reader, percent, f"batch-gain-{g}").mean() for g in ("0.1", "1.0")
    ]
    assert batch[0] < batch[1]
    yield "0.1 is better than 1 for name look-up"
    yield f"takes {both(usual())} of the time"
    units = [int(words.split()[3]) for words in sizes()[:4]]
    yield f"up to {max(units[:3])} units"
    yield f"With {units[3]:,} units"


# Numbers that nothing measured: of advice, of the paper, of names.
GIVEN = re.compile(
    "|".join(
        [
            *(r"```.*?```", r"`[^`]*`", r"\]\([^)]*\)", r"https?://\S+"),
            *(r"\n {4}python3 [^\n]*", r"Apache-2\.0", "float64", "Keras 3"),
            r"TensorFlow 1\b(?!\.)",
            *(r"\beq\. [\d-]+", r"section \d(\.\d)?", r"\b20\d\d\b"),
            *(r"\n\d\. ", r"\[x, 1 - x\]", "95 % interval"),
            r"start a recurrent network with 0\.003",
            r"Another gain \(0\.1, 0\.3, 1\)",
            r": 1, the default, and 0\.3",
            r"look-up 0\.1 and 1 end alike",
        ]
    ),
    re.DOTALL,
)
PAGES = {
    "README.md": on_readme,
    "docs/index.md": on_index,
    "docs/performance.md": on_performance,
    "docs/should_i_use_it.md": on_should_i_use_it,
}


@pytest.mark.parametrize("page", PAGES)
def test_every_number_is_measured(page):
    whole = text = (ROOT / page).read_text()
    for said in PAGES[page]():
        # Lines may break anywhere.
        words = r"\s+".join(map(re.escape, said.split()))
        words = rf"(?<![\d.]){words}(?![\d])"
        assert re.search(words, whole), f"{page} does not say: {said}"
        text = re.sub(words, "", text)
    assert re.findall(r".*\d.*", GIVEN.sub("", text)) == []
