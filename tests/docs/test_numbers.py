"""Numbers on the pages that people decide by are those of the kept tables."""

import itertools
import re
from functools import cache

import numpy as np
import pytest
from common import verdicts
from common.pairs import CELLS, ERROR, KEPT, VERDICTS, best_floor, ends
from docs.measured import (
    ROOT,
    both,
    bound,
    chosen,
    digits,
    figures,
    kept_settings,
    mean,
    memory,
    over_torch,
    own_cell,
    percent,
    plain_models,
    settings,
    table,
    usual,
    versions,
)

from docs import evidence, write_tables

pytestmark = pytest.mark.full
README, USE = "README.md", "docs/should_i_use_it.md"
FAST = "docs/guides/faster_as_they_are.md"
SPEED = "docs/performance.md"
FOUR = "permutation-invariant-mnist-sizes"
READER = ("attentive-reader", "validation_error_percent")


@cache
def numbers():
    """Name, value with its unit, and the pages that say it."""
    return [*_speeds(), *_results(), *_settings()]


def _speeds():
    for name, version in versions():
        yield f"oldest {name}", f"{name} {version}", (README,)
    yield "training with kernels", usual(), (README, SPEED, USE)
    yield "training on torch", both(over_torch(True)), (README,)
    yield "loop over a cell", f"{both(own_cell(), 1)} times", (SPEED,)
    frameworks = ("tensorflow", "jax")
    loops = memory("memory", frameworks, "cell")
    yield "memory without kernels", percent(loops), (SPEED,)
    kernels = memory("memory_kernels", frameworks, "keras_ln,")
    yield "memory with kernels", percent(kernels), (SPEED,)
    trained = []
    for backend in figures.BACKENDS:
        of_backend = plain_models(backend).values()
        trained += of_backend
        yield f"plain models, {backend}", both(of_backend), (FAST,)
        inferred = both(plain_models(backend, "inference").values())
        yield f"plain inference, {backend}", inferred, (FAST,)
    yield "plain models", both(trained), (README,)
    units = max(own[-1] for own in settings.SIZES.values())
    yield "most units timed", f"{units:,} units", (USE,)


def _results():
    counts, false = evidence.tally()
    yield "comparisons", f"{counts.total()} comparisons", (README, USE)
    for verdict in VERDICTS.values():
        ended = f"{counts[verdict]} {verdict}"
        pages = (README,) if verdict == "undecided" else (README, USE)
        yield f"ended {verdict}", ended, pages
    yield "expected false", f"{false:.2g} verdicts", (USE,)
    rows = f"{evidence.without_meaning()} more rows"
    yield "rows that decide nothing", rows, (USE,)
    level = f"{100 * verdicts.LEVEL:.0f} % of the decided"
    yield "false discoveries", level, (USE,)
    for kind in ("layer", "batch", "none"):
        value = mean(FOUR, ERROR, f"{kind}-batch-size-4", 2)
        yield f"batches of four, {kind}", f"{value} %", (USE,)
    size = min(kept_settings(FOUR)["args"]["batch_size"])
    yield "small batches", f"batches of {size}", (USE,)
    for order in ("natural", "permuted"):
        for kind in ("layer", "none"):
            value = f"{digits(order, kind)} %"
            yield f"digits, {order}, {kind}", value, (README,)
    name = "sequential-mnist"
    kept = kept_settings(name)
    size = kept["comparison"]["title"].split(", ")[1]
    yield "size of digits", size, (README,)
    epochs = f"{kept['args']['tune_epochs']} epochs"
    yield "epochs of digits' grid", epochs, (README,)
    regression = f"{best_floor(name, ERROR):.1f} %"
    yield "logistic regression", regression, (README,)
    (same,) = (
        row
        for row in table(KEPT / "handwriting" / "verdicts.csv")
        if row["verdict"] == "equivalent"
    )
    yield "margin of the same", f"{float(same['margin']):g} nats", (USE,)


def _settings():
    for limit, place in (("looser", 0), ("stricter", 2)):
        leads = np.array(evidence.more_settings(place))
        ended = f"wins in {sum(leads > 0)} and loses in {sum(leads < 0)}"
        yield f"more settings, {limit}", ended, (USE,)
    leads = evidence.more_settings(1)
    won = f"{sum(lead > 0 for lead in leads)} of {len(leads)} pairs"
    yield "more settings", won, (README, USE)
    yield "more settings by one", f"by one in {leads.count(1)}", (USE,)
    yield "as many settings", f"equal in {leads.count(0)}", (README, USE)
    rates = [
        [
            float(chosen(f"everyday-{task}", kind, {})[0]["learning_rate"])
            for kind in (layer, plain)
        ]
        for task in evidence.EVERYDAY
        for plain, layer in CELLS.values()
    ]
    for own, rival in rates:
        if max(own, rival) > 4 * min(own, rival):
            yield "rates far apart", f"{own:g} and {rival:g}", (USE,)
    best = [
        chosen(f"everyday-{task}", kind, {})[0]
        for task in evidence.EVERYDAY
        for kind in itertools.chain(*CELLS.values())
    ]
    plain = [row["scale"] for row in best if row["scale"]]
    large = f"{plain.count('3.0')} of {len(plain)} plain layers"
    yield "plain layers with large matrices", large, (USE,)
    losses = {}
    for row in table(KEPT / "everyday-characters" / "tuning.csv"):
        point = tuple(
            row[k] for k in ("norm", "learning_rate", "scale", "gain")
        )
        own = losses.setdefault(point, {})
        own[bool(row["forget_steps"])] = float(row["held-out loss"])
    both_ways = [own for own in losses.values() if len(own) == 2]
    worse = sum(own[True] > own[False] for own in both_ways)
    worse_ones = f"{worse} of {len(both_ways)} settings"
    yield "forget biases without long memory", worse_ones, (USE,)
    for kind, of in (("none", "deviation of {}"), ("layer", "chose {}")):
        row = chosen("skip-thoughts", kind, {})[0]
        vectors = of.format(row["word_scale"])
        yield f"word vectors, {kind}", vectors, (USE,)
    biases = [row["forget_steps"] for row in best if "forget_steps" in row]
    searches = f"{sum(map(bool, biases))} of {len(biases)} searches"
    yield "searches that chose forget biases", searches, (USE,)
    # Half of them by default, rounded up.
    epochs = -(-kept_settings("draw-mnist")["args"]["epochs"] // 2)
    yield "epochs of DRAW's grid", f"{epochs} epochs", (USE,)
    for gain in (0.3, 1):
        value = f"{bound(0.009, gain):.1f} nats"
        yield f"DRAW, gain {gain}", value, (USE,)
    (gain,) = {
        chosen("sequential-mnist-11000", "batch", {"order": order})[0]["gain"]
        for order in ("natural", "permuted")
    }
    yield "BNLSTM's gain for digits", f"{gain} for digits", (USE,)
    names = {g: ends(*READER, f"batch-gain-{g}").mean() for g in ("0.1", "1.0")}
    gain = min(names, key=names.get)
    yield "BNLSTM's gain for names", f"{gain} for names", (USE,)


# Numbers that nothing measured: of names, of the paper, and in code, which has
# the advice.
GIVEN = re.compile(
    r"```.*?```|`[^`]*`|\]\([^)]*\)|\n {4}python3 [^\n]*|\n\d\. "
    r"|Keras 3|TensorFlow 1\b|H200|TF32|b?float\d\d|\b20\d\d\b"
    r"|\bsection \d(\.\d)?|\[x, 1 - x\]|from 0\.9 to 1\.1 as equal",
    re.DOTALL,
)
CHECKED = (README, USE, SPEED, FAST)


def pattern(value):
    """A value on a page, where lines may break anywhere."""
    words = r"\s+".join(map(re.escape, value.split()))
    return rf"(?<![\d.]){words}(?!\d)"


def faults(page, text):
    """The numbers that a page lacks, and those that are not measured."""
    tables = write_tables.TABLES.get(page, ())
    left = text
    for line in (line for own in tables for line in own()):
        left = left.replace(f"{line}\n", "")
    for name, value, pages in numbers():
        if page in pages:
            if not re.search(pattern(value), text):
                yield f"{page}: {name} is missing, expected {value}"
            left = re.sub(pattern(value), "", left)
    if page in write_tables.TABLES:
        for line in re.findall(r".*\d.*", GIVEN.sub("", left)):
            yield f"{page}: not a measured number: {line}"


@pytest.mark.parametrize("page", CHECKED)
def test_numbers_are_measured(page):
    found = [*faults(page, (ROOT / page).read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", write_tables.TABLES)
def test_tables_are_measured(page):
    assert write_tables.updated(page) == (ROOT / page).read_text()


def test_a_wrong_number_is_named():
    text = (ROOT / README).read_text()
    name, value, pages = next(own for own in numbers() if "kernels" in own[0])
    assert README in pages
    missing, stray = faults(README, re.sub(pattern(value), "0.11 to 7", text))
    assert missing == f"{README}: {name} is missing, expected {value}"
    assert "0.11 to 7" in stray
