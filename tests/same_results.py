"""What two runs have to have in common to the last digit."""

from scripts import rows


def without_seconds(rows):
    """Rows of a history but for the time they took, which no run repeats."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def history(folder):
    """What `history.csv` says, as text, without the seconds."""
    return without_seconds(rows(folder / "history.csv"))


def assert_same_results(one, two, *names):
    """The same histories and the same bytes in the other files."""
    assert history(one) == history(two)
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes()
