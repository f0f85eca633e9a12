"""Numbers on the pages that people decide by are those of the kept tables."""

import re

import numpy as np
import pytest
from common import claims, verdicts
from docs.evidence import (
    CELLS,
    EVERYDAY,
    evidence,
    settings,
    tally,
    without_meaning,
)
from docs.measured import (
    ERROR,
    KEPT,
    NAMES,
    ROOT,
    best_floor,
    both,
    bound,
    chosen,
    digits,
    dimensions,
    ends,
    figures,
    floor,
    gpu,
    inference,
    kept_settings,
    listed,
    mean,
    memory,
    of_torch,
    of_torch_everywhere,
    on_gpu,
    own_cell,
    percent,
    sizes,
    streaming,
    sums,
    table,
    usual,
    versions,
)

pytestmark = pytest.mark.full
# With layer normalisation and without it.
PAIRS = [(layer, plain) for plain, layer in CELLS.values()]


def on_readme():
    yield from (*sizes(), *versions(), sums())
    ended, false = tally()
    yield f"in {ended.total()} comparisons with the plain network"
    yield (
        f"ended better in {ended['better']}, worse in {ended['worse']}, the "
        f"same in {ended['the same']} (at most {false:.2g} of these are "
        "expected false"
    )
    fashion = [
        mean("permutation-invariant-fashion", ERROR, f"{k}-batch-size-128")
        for k in ("layer", "none")
    ]
    yield "made {} % errors with layer normalisation, {} % without".format(
        *fashion
    )
    yield f"a step takes {usual()} of the time"
    batch = min(
        kept_settings("permutation-invariant-mnist-sizes")["args"]["batch_size"]
    )
    yield f"MNIST in batches of {batch}"
    layer, _, none = of_four()
    yield f"they end with {layer} % errors, and with {none} % without any"
    shares = [figures.shares(b, True, "inference", "D")[0] for b in NAMES]
    yield f"At D inference takes {listed(shares)} times as long"
    yield f"{listed(on_gpu())} of the time of `keras.layers.LSTM`"
    yield f"{of_torch_everywhere()} of `torch.nn.LSTM`'s at A to D"


def on_index():
    yield from list(versions())[:2]
    name = "sequential-mnist"
    kept = kept_settings(name)
    yield f"reduced to {kept['comparison']['title'].split(', ')[1]} and"
    yield f"It ended with {digits('natural', 'layer')} % errors"
    yield f"The LSTM ended with {digits('natural', 'none')} %"
    yield f"chosen after {kept['args']['tune_epochs']} epochs"
    yield f"at chance ({float(floor(name, 'chance')):g} %)"
    yield (
        f"{digits('permuted', 'layer')} against {digits('permuted', 'none')} %"
    )
    yield f"A logistic regression has {best_floor(name, ERROR):.1f} %"


def on_performance():
    yield from (*sizes(), *inference(), *of_torch(), *gpu(), streaming())
    yield f"takes {usual()} of a plain LSTM's time"
    yield f"{both(own_cell(), 1)} times as long"
    both_frameworks = ("tensorflow", "jax")
    loops = memory("memory", both_frameworks, "cell")
    yield f"without the kernels {percent(loops)} of what"
    kernels = memory("memory_kernels", both_frameworks, "keras_ln,")
    yield f"with them {percent(kernels)} of that"


def of_four():
    """Errors on MNIST in batches of four: with layer, with batch, with none."""
    return [
        mean("permutation-invariant-mnist-sizes", ERROR, f"{k}-batch-size-4", 2)
        for k in ("layer", "batch", "none")
    ]


def good(task, kind, limit=None):
    """How many of the nine points of the first grid learn well."""
    limit = limit or claims.OF[f"everyday-{task}"].good
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
    return sum(x <= limit for x in losses)


def more_settings(place):
    """In how many pairs more points reach a limit with layer norm.; ties."""
    signs = [
        np.sign(good(task, layer, limit) - good(task, plain, limit))
        for task in EVERYDAY
        for limit in [claims.OF[f"everyday-{task}"].thresholds[place]]
        for layer, plain in PAIRS
    ]
    assert min(signs) >= 0
    return signs.count(1), signs.count(0)


def on_should_i_use_it():
    yield from (*evidence(), *settings())
    reader = "attentive-reader"
    error = "validation_error_percent"
    ended, false = tally()
    yield (
        f"better in {ended['better']} of {ended.total()} rows below, worse "
        f"in {ended['worse']} and the same in {ended['the same']}; at most "
        f"{false:.2g} of these are expected"
    )
    yield f"{without_meaning()} more rows decide nothing"
    yield f"at most {100 * verdicts.LEVEL:.0f} % of the decided rows"
    low, one = (mean(reader, error, f"layer-gain-{g}") for g in (0.1, 1.0))
    yield f"{low} % errors with a gain of 0.1 and {one} % with 1"
    (loose, even), (strict, equal) = (more_settings(k) for k in (0, 2))
    yield f"with a looser one {loose} did and {even} tied"
    yield f"with a stricter one {strict} did and {equal} tied"
    for task in EVERYDAY:
        pairs = [[good(task, kind) for kind in pair] for pair in PAIRS]
        assert all(layer > plain for layer, plain in pairs)
        shown = "; ".join("{} and {}".format(*pair) for pair in pairs)
        yield f"{task.replace('_', ' ')} {shown}"
    rates = [
        [
            float(chosen(f"everyday-{task}", kind, {})[0]["learning_rate"])
            for kind in pair
        ]
        for task in EVERYDAY
        for pair in PAIRS
    ]
    (far,) = (pair for pair in rates if max(pair) > 4 * min(pair))
    yield "but for GRUs that forecast ({:g} and {:g})".format(*far)
    (same,) = (
        row
        for row in table(KEPT / "handwriting" / "verdicts.csv")
        if row["verdict"] == "equivalent"
    )
    yield f"within {float(same['margin']):g} nats"
    epochs = kept_settings("draw-mnist")["args"]["tune_epochs"]
    yield (
        f"had {bound(0.003, 0.3):.1f} nats after {epochs} epochs with gain 0.3 "
        f"and {bound(0.003, 1):.1f} with 1"
    )
    layer, batch, none = of_four()
    yield f"batches of 4 they make {layer} % errors with layer"
    yield f"and {batch} % with batch"
    yield f"({none} % with none)"
    (gain,) = {
        chosen("sequential-mnist-11000", "batch", {"order": order})[0]["gain"]
        for order in ("natural", "permuted")
    }
    yield f"`BNLSTM` wants less: {gain} for digits"
    batch = [
        ends(reader, error, f"batch-gain-{g}").mean() for g in ("0.1", "1.0")
    ]
    assert batch[0] < batch[1]
    yield "0.1 is better than 1 for names"
    yield f"takes {usual()} of the time"
    units = max(int(numbers[-1]) for numbers in dimensions().values())
    for said in ("at the sizes", "at five sizes"):
        yield f"{said} up to {units:,} units"


# Numbers that nothing measured: of advice, of the paper, of names.
GIVEN = re.compile(
    "|".join(
        [
            *(r"```.*?```", r"`[^`]*`", r"\]\([^)]*\)", r"https?://\S+"),
            *(
                r"\n {4}python3 [^\n]*",
                r"Apache-2\.0",
                r"b?float\d\d|TF32|H200",
                "Keras 3",
            ),
            r"TensorFlow 1\b(?!\.)",
            *(r"\beq\. [\d-]+", r"\(6\.\d\b", r"\b20\d\d\b"),
            r"sections? \d(\.\d(\s+and\s+\d\.\d)?)?",
            *(r"\n\d\. ", r"\[x, 1 - x\]", "95 % interval"),
            r"start a recurrent network with 0\.003",
            r"Another gain \(0\.1, 0\.3, 1\)",
            r": 1, the default, and 0\.3",
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
