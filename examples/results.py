"""The results of finished comparisons, archives in results/ beside this file.

    python examples/results.py
    python examples/results.py everyday-addition

An archive has the settings, the history, the metrics and the verdicts of the
runs, and the points of their searches: they were measured at an earlier commit,
which this script names, with a flag --tune that the scripts no longer have.
"""

import re
import stat
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from common import ending, files, flags
from common.errors import InputError

KEPT = Path(__file__).resolve().parent / "results"
SETTINGS, HISTORY, METRICS = "settings.json", "history.csv", "metrics.csv"
VERDICTS, COMPARISON = "verdicts.csv", "comparison.csv"
# No archive has more members, and no member more bytes.
MOST, LARGEST = 16, 2**24
_NAME = re.compile(r"\w[\w.-]*")


def read(path: Path) -> tuple[dict[str, str], str]:
    """The texts of an archive by name, and its comment."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            if len(set(archive.namelist())) < len(infos) or len(infos) > MOST:
                raise InputError(
                    f"{path}: expected at most {MOST} members with different "
                    f"names, received {len(infos)}"
                )
            texts = {one.filename: _text(path, archive, one) for one in infos}
            return texts, archive.comment.decode()
    except FileNotFoundError as error:
        kept = ", ".join(sorted(p.stem for p in KEPT.glob("*.zip")))
        raise InputError(
            f"NAME: expected one of {kept}, received {path.stem}"
        ) from error
    # `zipfile` raises RuntimeError for passwords and its subclass
    # NotImplementedError for unknown methods, ValueError for bad texts.
    except (
        *(zipfile.BadZipFile, zlib.error, OSError, EOFError),
        *(RuntimeError, ValueError, LookupError),
    ) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _text(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if not _NAME.fullmatch(info.filename) or kind not in (0, stat.S_IFREG):
        raise InputError(
            f"{path}: expected files with names of letters, digits, -, _ and "
            f"., received {info.filename!r}"
        )
    with archive.open(info) as member:
        content = member.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise InputError(
            f"{path}: {info.filename} unpacks to more than {LARGEST >> 20} MiB"
        )
    return content.decode()


def table(path: Path, member: str) -> list[dict[str, str]]:
    """The rows of a table in an archive, none without the table."""
    texts, _ = read(path)
    text = texts.get(member, "")
    return files.parse_table(text, f"{path}: {member}")


def show(path: Path) -> str:
    """The verdicts of an archive, or else its results."""
    from common import report

    texts, comment = read(path)
    members = [m for m in (VERDICTS, COMPARISON, METRICS) if m in texts]
    rows = table(path, members[0]) if members else []
    shown = report.table(rows) if rows else ""
    return "\n".join(filter(None, (path.stem, comment, shown)))


def main(argv: Sequence[str] | None = None) -> int:
    parser = flags.Parser("results.py", __doc__)
    what = {"type": flags.name, "nargs": "*", "metavar": "NAME"}
    parser.add_argument(
        "names", help="names in results/ (default: all)", **what
    )
    names = parser.parse_args(argv).names
    for name in names or sorted(p.stem for p in KEPT.glob("*.zip")):
        print(show(KEPT / f"{name}.zip"), end="\n\n")
    return 0


if __name__ == "__main__":
    ending.execute(main)
