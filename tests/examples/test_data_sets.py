"""Every reader reads what is whole, and refuses what is not."""

import os

import data_sets
import packaged_data
import pytest
import text_sets
from common.errors import InputError
from data_sets import EVERY, change, digest

READERS = data_sets.READERS | text_sets.READERS | packaged_data.READERS


def _cases(kind):
    """Of all readers, (reader, file, change, what is expected)."""
    return [
        pytest.param(reader, file, how, expected, id=f"{name}-{file}-{number}")
        for name, reader in READERS.items()
        for file, changes in getattr(reader, kind).items()
        for number, (how, expected) in enumerate(changes.items())
    ]


@pytest.mark.parametrize("name", READERS)
def test_what_is_read(tmp_path, name):
    reader = READERS[name]
    reader.make(tmp_path)
    assert digest(reader.read(tmp_path)) == reader.digest
    # Every fault that its format can show is fed below.
    fed = {how for changes in reader.faults.values() for how in changes}
    assert [how for how in EVERY if how not in fed] == [*reader.unseen]


@pytest.mark.parametrize(("reader", "file", "how", "expected"), _cases("good"))
def test_what_is_read_of_others(tmp_path, reader, file, how, expected):
    reader.make(tmp_path)
    change(tmp_path / file, how)
    assert digest(reader.read(tmp_path)) == (expected or reader.digest)


@pytest.mark.parametrize(("reader", "file", "how", "words"), _cases("faults"))
def test_faults_are_told(tmp_path, monkeypatch, reader, file, how, words):
    monkeypatch.delenv("EXECUTED", raising=False)
    reader.make(tmp_path)
    path = tmp_path / file
    change(path, how)
    with pytest.raises(InputError, match=words) as error:
        reader.read(tmp_path)
    assert "EXECUTED" not in os.environ
    told = str(error.value)
    assert path.name in told or "there is no" in told, told
    assert "\n" not in told
