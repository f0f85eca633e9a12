"""Results that are kept: what an archive may hold, and what is refused."""

import stat
import zipfile

import permutation_invariant_mnist as script
import pytest
import results
from common import files
from common.errors import InputError
from scripts import refusal


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Where results are kept."""
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


@pytest.fixture(scope="module")
def compared(whole):
    """The folder of a comparison."""
    return whole(script.__name__, "--smoke --units 4 --compare --batch-size 99")


@pytest.mark.parametrize("path", sorted(results.KEPT.glob("*.zip")))
def test_what_is_kept_is_whole(path):
    texts, comment = results.read(path)
    assert comment.startswith("measured at commit 2f88381 with --tune, which")
    assert {results.SETTINGS, results.HISTORY, results.METRICS} <= {*texts}
    assert results.settings(path)["args"]["compare"] is True
    for name in texts.keys() - {results.SETTINGS}:
        assert results.table(path, name), name
    assert "agrees" in results.show(path) or "decided" in results.show(path)


def test_a_comparison_is_kept(compared, kept, tmp_path, capsys):
    assert results.main(["keep", str(compared), "digits"]) == 0
    path = kept / "digits.zip"
    whole = path.read_bytes()
    history = results.table(path, results.HISTORY)
    assert len(history) == 2 * len(script.KINDS)
    metrics = results.table(path, results.METRICS)
    assert {row["run"] for row in metrics} == {row["run"] for row in history}
    settings = results.settings(path)
    assert settings["args"]["norm"] == [*script.KINDS]
    assert settings["none-batch-size-99-seed-0"]["environment"]["keras"]
    assert results.main(["show"]) == 0
    assert "| norm " in capsys.readouterr().out
    new = tmp_path / "new"
    assert results.main(["unpack", "digits", str(new)]) == 0
    assert {p.name for p in new.iterdir()} == {*results.read(path)[0]}
    # What is there stays there.
    words = ("keep", compared, "digits")
    assert "digits.zip exists; choose" in refusal(capsys, results.main, *words)
    words = ("unpack", "digits", new)
    assert "expected an empty one" in refusal(capsys, results.main, *words)
    path.unlink()
    results.keep(compared, path)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("comparison.csv", None),
        ("args.json", "[1]"),
        ("*/args.json", "[" * 100_000),
        ("*/environment.json", "3"),
        ("*/metrics.json", "[1]"),
        ("*/metrics.json", None),
        ("*/history.csv", "updates\n" + "1" * 200_000),
        ("*/history.csv", "updates\nx"),
        ("*/history.csv", "\xff\0"),
    ],
)
def test_a_damaged_comparison_is_not_kept(
    name, content, compared, kept, tmp_path, capsys
):
    folder = tmp_path / "runs"
    for path in compared.rglob("*"):
        if path.suffix in (".json", ".csv"):
            own = folder / path.relative_to(compared)
            own.parent.mkdir(parents=True, exist_ok=True)
            own.write_bytes(path.read_bytes())
    for path in folder.glob(name):
        if content is None:
            path.unlink()
        else:
            path.write_text(content, encoding="latin-1")
    refusal(capsys, results.main, "keep", folder, "digits")
    assert not [*kept.iterdir()]


def _written(path, *members):
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in members:
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)


def _link():
    info = zipfile.ZipInfo("link")
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


HOSTILE = {
    "above": ([("../x", "1")], "expected files with names of letters"),
    "absolute": ([("/tmp/x", "1")], "expected files with names of letters"),
    "folder": ([("x/y", "1")], "expected files with names of letters"),
    "link": ([(_link(), "/etc/passwd")], "expected files with names of lett"),
    "twice": ([("a", "1"), ("a", "2")], "with different names, received 2"),
    "many": ([(f"a{n}", "1") for n in range(17)], "different names, receiv"),
    "large": ([("a", bytes(2**24 + 1))], "unpacks to more than 16 MiB"),
    "binary": ([("a", b"\xff\xfe\0")], "cannot be read"),
}


@pytest.mark.promise("an archive of results")
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused(name, kept, tmp_path, capsys):
    members, message = HOSTILE[name]
    _written(kept / "own.zip", *members)
    before = sorted(tmp_path.rglob("*"))
    for words in (("show", "own"), ("unpack", "own", tmp_path / "new")):
        assert message in refusal(capsys, results.main, *words)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_archive_is_refused(kept, capsys):
    path = kept / "own.zip"
    results.write(path, {results.HISTORY: "run,a\nx,1\n", "a": "1" * 500})
    whole = path.read_bytes()
    flipped = bytes([*whole[:40], whole[40] ^ 255, *whole[41:]])
    for content in (b"", whole[:60], whole[:-30], flipped):
        path.write_bytes(content)
        with pytest.raises(InputError, match="own.zip"):
            results.read(path)
    for text in ("run,a\nx,1,2\n", "run,a\nx\n", "a\n" + "9" * 200_000):
        results.write(path, {results.HISTORY: text})
        with pytest.raises(InputError, match="history.csv"):
            results.table(path, results.HISTORY)
    for text in ("[" * 100_000, "[]", "{"):
        results.write(path, {results.SETTINGS: text})
        with pytest.raises(InputError, match="settings.json"):
            results.settings(path)
    line = refusal(capsys, results.main, "show", "other")
    assert line.endswith("NAME: expected one of own, received other")
    assert files.is_partial(path) is False
