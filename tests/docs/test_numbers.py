"""Numbers on the pages that people decide by are those of the kept tables."""

import re

import numpy as np
import pytest
from common import claims
from docs.evidence import evidence, settings
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
    mean,
    memory,
    of_torch,
    own_cell,
    sizes,
    streaming,
    table,
    updates_to_plain,
    usual,
    versions,
)

pytestmark = pytest.mark.full


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
