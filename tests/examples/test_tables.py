"""Tables, also of results that are odd."""

from pathlib import Path

from common import files, measures, tables


def test_summary_says_mean_deviation_and_divergence():
    one, two = (measures.Run(Path(), {"x": x}) for x in (1.0, 2.0))
    assert tables.summary([one], ["x"]) == ["1"]
    assert tables.summary([one, two], ["x"]) == ["1.5 ± 0.71"]
    lost = measures.Run(Path(), None)
    assert tables.summary([one, lost, two], ["x", "x"]) == (
        ["diverged (1)"] * 2
    )


def test_tables_are_aligned():
    assert tables.table(["a", "long"], [["word", 0.123456], ["b", 2]]) == (
        "| a    | long   |\n"
        "|------|--------|\n"
        "| word | 0.1235 |\n"
        "| b    | 2      |"
    )


def test_a_race_ends_where_the_rival_ended(tmp_path):
    panel = measures.Panel("loss", lambda row: row["loss"])

    def run(name, losses, finished=True):
        folder = tmp_path / name
        folder.mkdir()
        rows = [
            {"updates": 10 * epoch, "loss": loss}
            for epoch, loss in enumerate(losses, 1)
        ]
        files.write_csv(folder / "history.csv", rows)
        return measures.Run(folder, {"x": 1} if finished else None)

    rival = [run("a", [3.0, 2.0, 1.5]), run("b", [3.0, 0.1, 0.5])]
    one, two = run("c", [1.6, 1.5, 0.2]), run("d", [0.5, 2.0, 2.0])
    slow = run("e", [4.0, 3.0, 0.6])
    # Its best was 0.1, and the last value is worse by chance.
    assert tables.race(rival, rival, panel) == "25 ± 7.1"
    assert tables.race([one, one], rival, panel) == "not reached (1 of 2)"
    assert tables.race([one, two], 2 * rival[:1], panel) == "15 ± 7.1"
    assert tables.race([one, slow], 2 * rival[:1], panel) == "25 ± 7.1"
    assert tables.race([one], rival[:1], panel) == "20"
    lost = run("f", [1.0], finished=False)
    assert tables.race([lost], rival[:1], panel) == "diverged"
    assert tables.race([one], [lost], panel) == "diverged"
