"""Verdicts, of simulated data whose truth is known, and of runs."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import results
from common import (
    claims,
    claims_figure,
    cli,
    comparisons,
    files,
    measures,
    pairs,
    verdicts,
)
from scipy import stats

SIMULATIONS = 10_000
NLL = measures.end("nll", "NLL")


def _runs(*values):
    return [
        measures.Run(Path(), None if value is None else {"nll": value})
        for value in values
    ]


def _judge(layer, none, **options):
    claim = claims.Claim("better", "layer", "none", NLL, **options)
    groups = {("none",): _runs(*none), ("layer",): _runs(*layer)}
    (row,) = verdicts.judge([claim], groups)
    return row


@pytest.mark.parametrize(
    ("layer", "none", "verdict"),
    [
        # Paired: every seed is better, though the seeds differ by more.
        ((0.9, 1.8, 2.85, 3.9, 4.8), (1, 2, 3, 4, 5), "agrees"),
        ((1, 2, 3, 4, 5), (0.9, 1.8, 2.85, 3.9, 4.8), "disagrees"),
        ((1.1, 1.9, 3.2, 3.8, 5.0), (1, 2, 3, 4, 5), "undecided"),
        ((0.5, 1.5), (1, 2), "undecided"),
        ((0.5, 1.5, 2.5), (1, 2, 3), "agrees"),  # All by the same.
        ((1, 2, 3), (1, 2, 3), "undecided"),
        ((0.1, 0.2, 0.3, None), (1, 2, 3, 4), "undecided"),
        ((None,), (1,), "undecided"),
    ],
)
def test_the_rule(layer, none, verdict):
    row = _judge(layer, none)
    assert row["verdict"] == verdict
    assert row["seeds"] == len(layer)
    assert row["diverged"] == layer.count(None)


def test_means_are_over_the_seeds_that_both_finished():
    layer, none = (0.5, None, 1.5, 2.0), (1, 100, None, 4)
    row = _judge(layer, none)
    assert (row["seeds"], row["diverged"]) == (4, 2)
    assert (row["mean difference"], row["mean of rival"]) == (-1.25, 2.5)
    claim = claims.Claim("better", "layer", "none", NLL)
    groups = {("none",): _runs(*none), ("layer",): _runs(*layer)}
    found = verdicts.first_numbers([claim], groups)
    assert found == (claim, 1.25, 2.5, 2)


def test_a_measure_that_the_data_do_not_have():
    claim = claims.Claim("better", "a", "b", measures.end("rank", "rank"))
    groups = {("a",): _runs(1, None), ("b",): _runs(2, 3)}
    assert verdicts.judge([claim], groups) == []
    assert verdicts.first_numbers([claim], groups) is None


def test_the_same_is_within_a_margin():
    none = (1.0, 2.0, 3.0, 4.0, 5.0)
    near = (1.02, 1.97, 3.01, 4.02, 4.99)
    assert _judge(near, none, margin=0.1)["verdict"] == "equivalent"
    assert _judge(near, none, margin=0.02)["verdict"] == "undecided"
    far = [value + 1 for value in near]
    assert _judge(far, none, margin=0.1)["verdict"] == "disagrees"


def test_intervals_and_p_values_are_those_of_scipy():
    found = np.random.default_rng(0).normal(0.3, 1, size=7)
    expected = stats.ttest_1samp(found, 0)
    mean, low, high, p = verdicts.summary(found)
    assert mean == pytest.approx(found.mean())
    assert (low, high) == pytest.approx([*expected.confidence_interval()])
    assert p == pytest.approx(expected.pvalue)
    one_sided = [
        stats.ttest_1samp(found, bound, alternative=side).pvalue
        for bound, side in ((-2, "greater"), (2, "less"))
    ]
    assert verdicts.summary(found, 2)[3] == pytest.approx(max(one_sided))


def _kept_differences():
    """Of pairs of kinds in what is kept, with mean 0 and deviation 1."""
    for path in results.KEPT.glob(f"*/{results.METRICS}"):
        groups = {}
        for row in files.read_table(path):
            kind = row.pop("run").rpartition("-seed-")[0]
            counts = ("epochs", "updates", "best_updates", "folds")
            cells = [row[key] or "nan" for key in row if key not in counts]
            groups.setdefault(kind, []).append([*map(float, cells)])
        for one, two in itertools.combinations(groups.values(), 2):
            if len(one) == len(two):
                found = np.array(one) - np.array(two)
                found = found[:, (found.std(axis=0) > 0)]
                yield stats.zscore(found, ddof=1).ravel()


@pytest.mark.parametrize("seeds", [5, 10])
def test_coverage_on_differences_of_kept_runs(seeds, record_property):
    """Resampled, so that the truth is known: 0."""
    found = np.concatenate([*_kept_differences()])
    assert len(found) > 1_000
    drawn = np.random.default_rng(0).choice(found, size=(SIMULATIONS, seeds))
    _, low, high, _ = verdicts.summary(drawn)
    covered = float(np.mean((low < 0) & (high > 0)))
    record_property("coverage", covered)
    print(f"{covered:.3f} of {len(found)} differences")
    assert covered == pytest.approx(0.95, abs=0.02)


def test_holm_is_what_it_is():
    p = verdicts.corrected([0.01, 0.04, 0.03, 0.005])
    assert p == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_so_few_of_what_is_decided_is_false():
    """Of 29 pairs with ten seeds, 15 without a difference."""
    pairs, nulls = 29, 15
    means = np.where(np.arange(pairs) < nulls, 0.0, 1.5)
    drawn = np.random.default_rng(0).normal(size=(2_000, pairs, 10))
    *_, p = verdicts.summary(drawn + means[:, None])

    def false(p):
        decided = p < verdicts.LEVEL
        wrong = decided[:, :nulls].sum(axis=1)
        return (wrong / np.maximum(decided.sum(axis=1), 1)).mean()

    expected = verdicts.LEVEL * nulls / pairs
    assert false(verdicts.discovered(p)) == pytest.approx(expected, abs=3e-3)
    # The same as without it would be more.
    assert false(p) > expected + 0.02
    found = verdicts.discovered([0.01, 0.04, 0.03, 0.005])
    assert found == pytest.approx([0.02, 0.04, 0.04, 0.02])


def _run(folder, losses, **metrics):
    folder.mkdir()
    files.write_csv(
        folder / "history.csv",
        [{"updates": 10 * n, "loss": loss} for n, loss in enumerate(losses, 1)],
    )
    return measures.Run(folder, metrics)


def test_measures(tmp_path):
    run = _run(tmp_path / "a", [100.0, 1.0, 10.0], nll=3.0)
    assert measures.mean("loss", "loss").of(run) == pytest.approx(37)
    assert measures.mean("loss", "loss", log=True).of(run) == pytest.approx(1)
    assert measures.mean("loss", "loss", sign=-1).of(run) == pytest.approx(-37)
    assert NLL.of(run) == 3
    assert measures.first_updates(run, "loss", 10.0) == 20
    assert measures.first_updates(run, "loss", 0.5) is None
    perfect = _run(tmp_path / "b", [1.0, 0.0])
    smallest = measures.mean("loss", "loss", log=True).of(perfect)
    assert smallest == pytest.approx(-12 * math.log10(2))


def test_changes_are_paired():
    groups = {
        ("layer", 128): _runs(1.0, 2.0, 3.0),
        ("layer", 4): _runs(1.1, 2.2, 3.0),
        ("batch", 128): _runs(1.0, 2.0, 3.0),
        ("batch", 4): _runs(2.0, 3.1, 3.9),
        ("none", None): _runs(1.0, 2.0, 4.0),
    }
    less = claims.Claim("a", "layer", "batch", NLL, 4, base=128)
    change = claims.Claim("b", "layer", "layer", NLL, 4, 128, primary=False)
    any_value = claims.Claim("c", "layer", "none", NLL, 4)
    rows = verdicts.judge([less, change, any_value], groups)
    found = [row["mean difference"] for row in rows]
    assert found == pytest.approx([-0.9, 0.1, -0.7 / 3])
    # Two of them are corrected.
    assert rows[0]["corrected p"] == pytest.approx(2 * rows[0]["p"])
    assert rows[1]["corrected p"] == rows[1]["verdict"] == ""


@pytest.mark.parametrize("name", claims.OF)
def test_claims_are_of_what_a_comparison_runs(name):
    experiment = cli.find(name)
    values = [None, *(v for own in experiment.compared.values() for v in own)]
    table = claims.OF[name]
    assert table.claims and table.claims[0].primary
    for claim in table.claims:
        assert {claim.kind, claim.rival} <= {*experiment.kinds}
        assert {claim.value, claim.rival_value, claim.base} <= {*values}
        assert len(claim.text.split()) <= 12
        if experiment.compared and not experiment.without_gain:
            assert claim.value is not None
    assert [*table.thresholds] == sorted(table.thresholds, reverse=True)


@pytest.mark.parametrize("task", ["addition", "characters", "long_memory"])
def test_what_is_kept_is_judged_as_it_was(tmp_path, task):
    """By the error, as was said before those runs, not by today's loss."""
    name = f"everyday-{task}"
    table = claims.OF[name]
    kept = files.read_table(results.KEPT / name / "verdicts.csv")
    results.restore(results.KEPT / name, tmp_path / "runs")
    args = files.read_json(tmp_path / "runs" / "args.json")
    record = files.read_json(tmp_path / "runs" / comparisons.RECORD)
    judged = verdicts.judge(
        table.of_runs(args), comparisons._groups(tmp_path / "runs", record)
    )
    for key in ("claim", "measure", "verdict"):
        assert [row[key] for row in judged] == [row[key] for row in kept]
    texts = {claim.text: claim.measure.label for claim in table.claims}
    # One text is one measure, then and now.
    assert all(texts[own.text] == own.measure.label for own in table.earlier)


def test_the_table_of_claims_is_printed(capsys):
    assert results.main(["claims"]) == 0
    out = capsys.readouterr().out
    for name, table in claims.OF.items():
        assert out.count(f"| {name} ") == len(table.claims)


def test_a_claim_of_a_kind_that_was_not_run_has_no_row():
    claim = claims.Claim("better", "layer", "none", NLL)
    assert verdicts.judge([claim], {("none",): _runs(1.0)}) == []


def _kept(folder, **kept):
    """A kept comparison of convolutional networks, with two verdicts."""
    texts = ("layer is faster than none", "batch is faster than layer")
    files.make_folder(folder)
    record = {"experiment": "convolutional_networks", "title": "a\nb"}
    files.write_json(folder / "settings.json", {"comparison": record | kept})
    row = {"mean difference": -0.5, "from": -3.0, "to": 0.1}
    row["mean of rival"] = -2.0
    row |= {"measure": "NLL", "seeds": 5, "verdict": "agrees"}
    rows = [{"claim": text, **row} for text in texts]
    files.write_csv(folder / "verdicts.csv", rows)


def test_the_summary_of_named_claims(tmp_path, monkeypatch):
    kept = {"one": {"edges": [["none"]]}, "two": {"edges": [["batch"]]}}
    for name, edges in (kept | {"three": {}}).items():
        _kept(tmp_path / name, **edges)
    named = [
        {
            "section": "6.7 Section A",
            "comparison": name,
            "claim": "layer is faster than none",
            "name": "faster",
            "weakest point": "small",
        }
        for name in ("three", "absent", "two", "one")
    ]
    files.write_csv(tmp_path / "claims.csv", named)
    monkeypatch.setattr(claims_figure, "NAMED", tmp_path / "claims.csv")
    rows = claims_figure.rows(tmp_path)
    assert [row["comparison"] for row in rows] == ["three", "two", "one"]
    # The first is from before grids could grow.
    assert [row["on an edge"] for row in rows] == [True, False, True]
    assert "before the protocol" in rows[0]["weakest point"]
    for row in rows:
        np.testing.assert_allclose(row["percent"], [-25.0, -150.0, 5.0])
        np.testing.assert_allclose(row["ratio"], np.exp([-0.5, -3.0, 0.1]))
    (_, _, first, second, _) = claims_figure.table(rows).splitlines()
    cells = [cell.strip() for cell in first.split("|")[1:-1]]
    assert cells == [
        "[6.7 Section A](section_a.md)",
        "layer is faster than none",
        "**agrees**",
        "NLL -0.5 (-3 to 0.1), -25 %",
        "a; b, 5 seeds",
        "small; a small grid, from before the protocol",
    ]
    assert second.split("|")[1].isspace()
    claims_figure.draw(rows, tmp_path / "claims.png")
    assert (tmp_path / "claims.png").stat().st_size > 5000


def test_the_page_has_the_table_of_what_is_kept(tmp_path):
    rows = claims_figure.rows(results.KEPT)
    assert 10 < len(rows) <= len(files.read_table(claims_figure.NAMED)) <= 20
    # Claims that are no longer primary have none.
    assert all(row["verdict"] for row in rows)
    page = results.KEPT.parents[1] / results.PAGE
    copy = tmp_path / page.name
    copy.write_text(page.read_text("utf-8"), "utf-8")
    claims_figure.insert(copy, claims_figure.table(rows))
    assert copy.read_text("utf-8") == page.read_text("utf-8")


def test_differences_of_logarithms_are_ratios():
    claim = claims.OF["everyday-addition"].claims[0]
    assert "log10" in claim.measure.label
    np.testing.assert_allclose(claims_figure._percent(claim, 1.0, 9.0), 900.0)


def test_the_figure_has_every_pair_and_says_who_is_better():
    judged = pairs.judged()
    lines = [claims_figure._line_of_pair(pair) for pair in judged]
    kept = {path.parent.name for path in results.KEPT.glob("*/settings.json")}
    assert {row.name for _, row in pairs.rows()} == kept
    assert len({line.label for line in lines}) == len(lines)
    grouped = claims_figure._grouped(lines)
    assert {own for own in grouped if not isinstance(own, str)} == {*lines}
    better = [own for own in judged if own.end == "better"]
    meant = sum(not own.decides_nothing for own in better)
    assert grouped[0] == f"better: {meant}"
    assert grouped[meant + 1].startswith("worse: ")
    for line, pair in zip(lines, judged, strict=True):
        unclear = pair.decides_nothing
        assert line.verdict == (claims_figure.NOTHING if unclear else pair.end)
        if pair.row.column in (pairs.ERROR, "test_error"):
            plain, layer = (found.mean() for found in pair.ends)
            np.testing.assert_allclose(line.ratio[0], layer / plain)
    rows = claims_figure.rows(results.KEPT)
    (batch,) = [row for row in rows if row["claim"].startswith("batch")]
    assert batch["verdict"] == "agrees"
    line = claims_figure._line_of_claim(batch)
    assert line.verdict == "worse"
    # Of the layer's loss by the other's, as in all lines.
    middle, low, high = line.ratio
    assert 1 < low < middle < high
    np.testing.assert_allclose(batch["ratio"], [1 / middle, 1 / high, 1 / low])


def test_rivals_have_a_mean():
    assert _judge((1, 2, 3), (4, 5, None))["mean of rival"] == 4.5
