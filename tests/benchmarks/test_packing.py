"""Sentences padded, bucketed and packed: the same words each time."""

import argparse
import json

import numpy as np
import pytest
from scripts import rows

from benchmarks import packing

OPTIONS = argparse.Namespace(sentences=40, words=60)


@pytest.fixture(scope="module")
def text():
    return packing.sentences(OPTIONS)


def test_sentences(text):
    assert len(text) == 40
    words = np.concatenate(text)
    assert packing.RARE <= words.min() and words.max() < OPTIONS.words
    assert (words == packing.RARE).mean() < 0.7
    assert len({len(words) for words in text}) > 5


@pytest.mark.parametrize("arrangement", packing.ARRANGEMENTS)
def test_each_arrangement_has_every_sentence_once(arrangement, text):
    made = packing.batches(arrangement, text, 8)
    found = []
    for inputs, targets, reset in made:
        assert inputs.shape == targets.shape == reset.shape
        assert inputs.shape[1] % packing.STEP == 0
        np.testing.assert_array_equal(reset, inputs == packing.START)
        for row in range(len(inputs)):
            starts = np.flatnonzero(reset[row])
            assert arrangement == "packed" or len(starts) == 1
            for start in starts:
                rest = targets[row, start:]
                words = rest[: np.flatnonzero(rest == packing.END)[0]]
                np.testing.assert_array_equal(
                    inputs[row, start + 1 : start + 1 + len(words)], words
                )
                found.append(tuple(map(int, words)))
    assert sorted(found) == sorted(tuple(map(int, words)) for words in text)


def test_less_padding(text):
    steps = {
        arrangement: sum(
            inputs.size for inputs, *_ in packing.batches(arrangement, text, 8)
        )
        for arrangement in packing.ARRANGEMENTS
    }
    assert steps["padded"] > steps["bucketed"] > steps["packed"]


def test_the_table(tmp_path, capsys, monkeypatch):
    """Words per second of the median round, and ratios to the padded ones."""
    seconds = dict(zip(packing.ARRANGEMENTS, (4.0, 2.0, 1.0), strict=True))
    factors = iter([f for f in (1, 5, 2) for _ in packing.ARRANGEMENTS])

    def run(arrangement, arguments):
        made = {"first": 9, "words": 80, "steps": 100, "updates": 3}
        return {**made, "second": seconds[arrangement] * next(factors)}

    monkeypatch.setattr(packing, "run", run)
    packing.main(["--output", str(tmp_path / "p")])
    table = rows(tmp_path / "p.csv")
    assert [int(row["words_per_second"]) for row in table] == [10, 20, 40]
    assert [float(row["of_padded"]) for row in table] == [1, 2, 4]
    assert (tmp_path / "p.png").exists()
    assert "4.00 times padded, 80% of the steps" in capsys.readouterr().out


@pytest.mark.full
def test_it_runs(tmp_path, capsys, monkeypatch):
    in_a_process = packing.run

    def run(arrangement, arguments):
        # One of them so, since imports take longer than the rest.
        if arrangement == "packed":
            return in_a_process(arrangement, arguments)
        packing.main([*arguments, "--train", arrangement])
        return json.loads(capsys.readouterr().out)

    monkeypatch.setattr(packing, "run", run)
    packing.main(["--smoke", "--output", str(tmp_path / "p")])
    assert all(float(r["words_per_second"]) for r in rows(tmp_path / "p.csv"))
