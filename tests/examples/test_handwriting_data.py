"""Lines of handwriting: IAM-OnDB's format, and the embedded generator."""

import shutil
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from common.datasets import iam_ondb, strokes
from common.errors import InputError

FIXTURES = Path(__file__).parent / "fixtures" / "iam_ondb"
FIRST_LINE = [
    [934, -1091, 0],
    [956, -980, 0],
    [971, -912, 1],
    [978, -904, 0],
    [989, -1143, 0],
    [1016, -1173, 0],
    [1038, -1081, 1],
]


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FIXTURES, tmp_path / "iam"))


def _load(data, length=500, data_dir=None):
    return strokes.load(
        Namespace(data=str(data), length=length, data_dir=data_dir)
    )


def test_reads_the_published_format(folder):
    found = list(iam_ondb.lines(folder, "train"))
    assert [line[:2] for line in found] == [
        ("a01-000u-01", "A MOVE to stop"),
        ("a01-000u-02", "Mr. Gaitskell"),
        ("a01-000w-01", "By Trevor"),
    ]
    np.testing.assert_array_equal(found[0][2], FIRST_LINE)
    # A form may be named with or without its writer.
    (folder / "trainset.txt").write_text("a01-000w\n")
    assert [line[0] for line in iam_ondb.lines(folder, "train")] == (
        ["a01-000w-01"]
    )


def test_lines_are_offsets_of_unit_deviation(folder):
    data = _load(folder)
    # The smaller validation set tests, all others train.
    assert len(data.train.points) == 6 and len(data.test.points) == 1
    steps = np.diff(np.array(FIRST_LINE)[:, :2], axis=0)
    scale = steps[0, 0] / data.train.points[0, 0, 0]
    np.testing.assert_allclose(
        data.train.points[0, :, :2] * scale, steps, rtol=1e-5
    )
    assert list(data.train.points[0, :, 2]) == [0, 1, 0, 0, 0, 1]
    inside = data.train.points[data.train.valid == 1][:, :2]
    assert inside.std() == pytest.approx(1, rel=1e-5)
    text = "A MOVE to stop"
    symbols = data.train.symbols[0]
    assert [strokes.ALPHABET[i - 1] for i in symbols[:14]] == list(text)
    assert not symbols[14:].any()
    # Digits and the like share one symbol: "of Labour, 1961".
    texts = [list(row[9:]) for row in data.train.symbols]
    assert [3, 1, 57, 57, 57, 57] in texts


def test_long_lines_are_cut_and_short_ones_filled(folder):
    path = folder / "lineStrokes/a01/a01-000/a01-000u-02.xml"
    xml = path.read_text()
    point = '<Point x="1100" y="1081" time="700.06"/>'
    path.write_text(xml.replace("</Stroke>", 3 * point + "</Stroke>", 1))
    data = _load(folder)
    assert data.train.points.shape == (6, 9, 3)
    assert list(data.train.valid.sum(axis=1)) == [6, 9, 6, 6, 6, 6]
    assert not data.train.points[0, 6:].any()
    assert _load(folder, length=4).train.points.shape == (6, 4, 3)


def _no_strokes(text):
    return text[: text.index("<Stroke ")] + text[text.index("</StrokeSet>") :]


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("trainset.txt", None, "trainset.txt does not exist"),
        (
            "trainset.txt",
            lambda text: "z99-999",
            r"names the form z99-999, but there is no ascii/\*\*/z99-999",
        ),
        (
            "ascii/a01/a01-000/a01-000u.txt",
            lambda text: text.partition("CSR:")[0],
            "a01-000u.txt has no lines of text below CSR:",
        ),
        (
            "ascii/a01/a01-000/a01-000u.txt",
            lambda text: text.rpartition("Mr.")[0],
            "has 1 lines and none for a01-000u-02.xml",
        ),
        (
            "lineStrokes/b02/b02-010/b02-010z-01.xml",
            None,
            "there is no .*b02-010/b02-010z-",
        ),
        (
            "lineStrokes/b02/b02-010/b02-010z-01.xml",
            lambda text: text[:-40],
            "b02-010z-01.xml is no whole XML file",
        ),
        (
            "lineStrokes/b02/b02-010/b02-010z-01.xml",
            _no_strokes,
            "b02-010z-01.xml has no strokes",
        ),
        (
            "lineStrokes/b02/b02-010/b02-010z-01.xml",
            lambda text: text.replace('x="', 'z="'),
            "has a point without numbers x and y: 'x'",
        ),
    ],
)
def test_broken_files_are_named(folder, name, spoil, message):
    path = folder / name
    text = path.read_text()
    path.unlink()
    if spoil is not None:
        path.write_text(spoil(text))
    with pytest.raises(InputError, match=message):
        _load(folder)


def test_tensorflow_datasets_gives_the_same(folder, tmp_path):
    manual = tmp_path / "data" / "downloads" / "manual"
    shutil.copytree(folder, manual)
    expected = _load(folder)
    found = _load("tfds", data_dir=str(tmp_path / "data"))
    # In an order of its own.
    assert sorted(map(bytes, found.train.points)) == (
        sorted(map(bytes, expected.train.points))
    )
    np.testing.assert_array_equal(found.test.symbols, expected.test.symbols)


def test_missing_data_say_where_they_are(tmp_path):
    with pytest.raises(InputError, match="is not prepared .* are at https://"):
        _load("tfds", data_dir=str(tmp_path))
    manual = tmp_path / "downloads" / "manual"
    shutil.copytree(FIXTURES, manual)
    (manual / "trainset.txt").unlink()
    with pytest.raises(InputError, match="trainset.txt does not exist"):
        _load("tfds", data_dir=str(tmp_path))
    with pytest.raises(InputError, match="expected a folder with lineStrokes"):
        _load(FIXTURES / "trainset.txt")


def test_generated_lines():
    train, test = strokes.generate(20, 5, seed=1)
    assert (len(train), len(test)) == (20, 5)
    again, _ = strokes.generate(20, 5, seed=1)
    other, _ = strokes.generate(20, 5, seed=2)
    assert [text for text, _ in train] == [text for text, _ in again]
    assert [text for text, _ in train] != [text for text, _ in other]
    for (text, way), (_, same) in zip(train, again, strict=True):
        np.testing.assert_array_equal(way, same)
        assert 0 < len(text) <= strokes.LONGEST_SMALL_TEXT
        assert set(text) <= set(strokes.ALPHABET)
        assert way.shape[1] == 3 and way[-1, 2] == 1
        assert way.dtype == np.float32
        # A letter is wider than a point is long, and goes to the right.
        assert len(way) > 3 * len(text.replace(" ", ""))
        assert way[-5:, 0].mean() > way[:5, 0].mean() or len(text) < 3


def test_writers_differ():
    random = np.random.default_rng(0)
    one, two = (strokes.draw("and", random) for _ in range(2))
    assert one.shape != two.shape or np.abs(one - two).max() > 0.01


def test_points_lie_at_equal_distances_on_the_stroke():
    corner = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    found = strokes._resample(corner, step=0.25)
    np.testing.assert_allclose(found[[0, 4, 8]], corner)
    distances = np.linalg.norm(np.diff(found, axis=0), axis=1)
    np.testing.assert_allclose(distances, 0.25)


def test_symbols():
    assert strokes.SYMBOLS == 57
    found = strokes.encode_all(["az", "A b!"])
    assert found.tolist() == [[31, 56, 0, 0], [5, 1, 32, 57]]
