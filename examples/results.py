"""Finished comparisons, each kept as an archive in results/ beside this file.

    python examples/results.py show
    python examples/results.py show everyday-addition
    python examples/results.py unpack everyday-addition FOLDER
    python examples/results.py keep runs/sequential_mnist NAME

An archive has the settings, the history and the metrics of every run. Those of
the paper's experiments also have the points of their searches and the verdicts:
they were measured at an earlier commit, which `show` names, with a flag --tune
that the scripts no longer have.
"""

import re
import stat
import zipfile
import zlib
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import ending, files, flags
from common.errors import InputError

KEPT = Path(__file__).resolve().parent / "results"
SETTINGS, HISTORY, METRICS = "settings.json", "history.csv", "metrics.csv"
VERDICTS, COMPARISON = "verdicts.csv", "comparison.csv"
# No archive has more members, and no member more bytes.
MOST, LARGEST = 16, 2**24
_NAME = re.compile(r"\w[\w.-]*")


def write(path: Path, members: Mapping[str, str], comment: str = "") -> None:
    """Writes texts as an archive; equal texts make equal bytes."""
    with files.replacing(path) as partial:
        with zipfile.ZipFile(partial, "w") as archive:
            archive.comment = comment.encode()
            for name, text in sorted(members.items()):
                info = zipfile.ZipInfo(name)  # Of 1980.
                info.external_attr = (stat.S_IFREG | 0o644) << 16
                info.create_system = 3
                archive.writestr(info, text, zipfile.ZIP_DEFLATED, 9)


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


def keep(source: Path, path: Path) -> None:
    """Keeps the measurements of a comparison, without models."""
    from common import runs

    if path.exists():
        raise InputError(f"NAME: {path} exists; choose another name")
    if not (source / COMPARISON).is_file():
        raise InputError(f"{source} has no {COMPARISON}")
    settings: dict[str, Any] = {"args": _object(source / "args.json")}
    history, metrics = [], []
    for own in sorted(p.parent for p in source.glob("*/args.json")):
        name = files.inside(source, own.name, source).name
        settings[name] = {
            part: _object(own / f"{part}.json")
            for part in ("args", "environment")
            if (own / f"{part}.json").exists()
        }
        found = runs.metrics_of(own)
        if found is not None:
            metrics.append({"run": name, **found})
        history += [{"run": name, **row} for row in runs.history_of(own)]
    if not metrics:
        raise InputError(f"{source} has no finished run")
    files.make_folder(path.parent)
    texts = {SETTINGS: files.as_json(_shortened(settings))}
    texts |= {HISTORY: files.as_csv(history), METRICS: files.as_csv(metrics)}
    texts[COMPARISON] = files.read_text(source / COMPARISON)
    write(path, texts)


def _object(path: Path) -> dict[str, Any]:
    found = files.read_json(path)
    if not isinstance(found, dict):
        raise InputError(f"{path} is damaged")
    return found


def _shortened(value: Any) -> Any:
    """Removes the folders from paths, which depend on the machine."""
    if isinstance(value, dict):
        return {key: _shortened(own) for key, own in value.items()}
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name
    return value


def unpack(path: Path, folder: Path) -> None:
    """Writes the texts of an archive into a new folder."""
    texts, _ = read(path)
    files.check_folder(folder)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"FOLDER: expected an empty one, received {folder}")
    files.make_folder(folder)
    for name, text in texts.items():
        files.write_text(folder / name, text)


def table(path: Path, member: str) -> list[dict[str, str]]:
    """The rows of a table in an archive, none without the table."""
    texts, _ = read(path)
    text = texts.get(member, "")
    return files.parse_table(text, f"{path}: {member}")


def settings(path: Path) -> dict[str, Any]:
    """The settings in an archive."""
    texts, _ = read(path)
    source = f"{path}: {SETTINGS}"
    found = files.parse_json(texts.get(SETTINGS, "null"), source)
    if not isinstance(found, dict):
        raise InputError(f"{source} is damaged")
    return found


def show(path: Path) -> str:
    """The verdicts of an archive, or else its results."""
    from common import report

    texts, comment = read(path)
    members = [m for m in (VERDICTS, COMPARISON, METRICS) if m in texts]
    rows = table(path, members[0]) if members else []
    shown = report.table(rows) if rows else ""
    return "\n".join(filter(None, (path.stem, comment, shown)))


def parse(argv: Sequence[str] | None) -> Namespace:
    """The flags."""
    parser = flags.Parser("results.py", __doc__)
    actions = parser.add_subparsers(dest="action", required=True)

    def add(action_name, meaning, **arguments):
        action = actions.add_parser(
            action_name, help=meaning, description=meaning
        )
        for own, how in arguments.items():
            action.add_argument(own, **how)

    one = {"type": flags.name, "metavar": "NAME", "help": "a name in results/"}
    folder = {"type": Path, "metavar": "FOLDER", "help": "a folder"}
    add("show", "print what is kept", names=one | {"nargs": "*"})
    add("unpack", "write the files of an archive", name=one, folder=folder)
    add("keep", "keep a comparison", folder=folder, name=one)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    args = parse(argv)
    if args.action == "keep":
        keep(args.folder, KEPT / f"{args.name}.zip")
    elif args.action == "unpack":
        unpack(KEPT / f"{args.name}.zip", args.folder)
    else:
        for name in args.names or sorted(p.stem for p in KEPT.glob("*.zip")):
            print(show(KEPT / f"{name}.zip"), end="\n\n")
    return 0


if __name__ == "__main__":
    ending.execute(main)
