"""Finished comparisons: kept as a few tables, and drawn again from these.

    python examples/results.py keep runs/sequential_mnist sequential-mnist
    python examples/results.py draw sequential-mnist
    python examples/results.py restore sequential-mnist runs/sequential_mnist
    python examples/results.py claims

`keep` writes the measurements of a comparison, without models, into a folder of
this name in `results/` beside this file. `draw` writes its table, figure and
verdicts again and prints them; the figure also goes into `figures/`. Without
names it draws all comparisons that are kept. It then draws the claims of
`results/claims.csv` into `figures/claims.png` and the table of docs/paper.
`restore` makes the folders of the comparison's runs again, for more seeds or
unfinished runs: continue with the command of the comparison, --resume and
--output-dir. `claims` prints the claims of every experiment.
"""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import claims, ending, files, flags
from common.errors import InputError, check_tensorflow

KEPT = Path(__file__).resolve().parent / "results"
# Flags, environment, floors and runs; all evaluations; the runs' final metrics;
# all points of the grid; the verdicts.
SETTINGS, HISTORY, METRICS = "settings.json", "history.csv", "metrics.csv"
TUNING, VERDICTS = "tuning.csv", "verdicts.csv"
# The files that `draw` makes from them.
DRAWN = ("comparison.csv", "comparison.png", VERDICTS)
# The page with the table of claims, beside the pages of their sections.
PAGE = "docs/paper/index.md"
# Files of a comparison; one of FINISHED exists as soon as a run is finished.
OF_ALL = ("args", "comparison", "floors")
FINISHED = ("comparison.json", TUNING)
OF_RUN = ("args", "environment")


def keep(source: Path, folder: Path) -> None:
    """Writes a comparison's tables into the folder of results to keep.

    Raises:
        InputError: if `source` is not a comparison, no grid or seed in it is
            finished, or it names runs that it does not contain.
    """
    if not any((source / name).is_file() for name in FINISHED):
        raise InputError(f"{source} has no {' and no '.join(FINISHED)}")
    ended = {path.parent.name for path in source.glob("*/metrics.json")}
    settings = {name: _read(source / f"{name}.json") for name in OF_ALL}
    record = settings["comparison"] or {"runs": []}
    # Diverged runs too, in the order of the comparison.
    names = [run["folder"] for run in record["runs"]]
    names += sorted(ended.difference(names))
    folders = [
        files.inside(source, own, source / "comparison.json") for own in names
    ]
    for name in OF_RUN:
        found = [_read(own / f"{name}.json") for own in folders]
        settings[f"{name} of runs"] = _factored(
            dict(zip(names, found, strict=True))
        )
    history, metrics = [], []
    for own in folders:
        path = own / HISTORY
        rows = files.read_table(path) if path.exists() else []
        history += [{"run": own.name, **row} for row in rows]
        found = _read(own / "metrics.json")
        if found is not None:
            cells = {key: json.dumps(value) for key, value in found.items()}
            metrics.append({"run": own.name, **cells})
    files.make_folder(folder)
    files.write_json(folder / SETTINGS, _shortened(settings))
    files.write_csv(folder / HISTORY, history)
    files.write_csv(folder / METRICS, metrics)
    for name in (TUNING, VERDICTS):
        if (source / name).exists():
            text = (source / name).read_text("utf-8")
            files.write_text(folder / name, text)


def restore(source: Path, folder: Path) -> None:
    """Makes a folder from kept results with which the comparison can continue.

    Raises:
        InputError: if `source` has no kept results, or `folder` is not empty.
    """
    _check_kept(source)
    files.check_folder(folder)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"FOLDER: expected an empty one, received {folder}")
    # Everything is read before anything is written.
    with _kept(source):
        found = dict(_restored(source, folder))
    files.make_folder(folder)
    for path, text in found.items():
        files.make_folder(path.parent)
        files.write_text(path, text)


@contextlib.contextmanager
def _kept(folder: Path) -> Iterator[None]:
    """Raises an `InputError` if the folder has other contents."""
    try:
        yield
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder} was not written by keep ({error!r})"
        ) from error


def _restored(source: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    """The files of the folder, with their contents."""
    settings = files.read_json(source / SETTINGS)
    for name in OF_ALL:
        if settings[name] is not None:
            yield folder / f"{name}.json", files.as_json(settings[name])
    for run in (settings["comparison"] or {"runs": []})["runs"]:
        files.inside(folder, run["folder"], source / SETTINGS)
    if (source / TUNING).exists():
        yield folder / TUNING, (source / TUNING).read_text("utf-8")
    for name in OF_RUN:
        kept = settings[f"{name} of runs"]
        for own, differing in kept["each"].items():
            path = files.inside(folder, own, source / SETTINGS)
            if differing is not None:
                whole = {
                    key: differing.get(key, kept["all"].get(key))
                    for key in kept["order"]
                    if key in differing or key in kept["all"]
                }
                yield path / f"{name}.json", files.as_json(whole)
    histories: dict[Path, list[dict[str, str]]] = {}
    for row in files.read_table(source / HISTORY):
        path = files.inside(folder, row.pop("run"), source / HISTORY)
        cells = {key: value for key, value in row.items() if value}
        histories.setdefault(path, []).append(cells)
    for path, rows in histories.items():
        yield path / HISTORY, files.as_csv(rows)
    for row in files.read_table(source / METRICS):
        path = files.inside(folder, row.pop("run"), source / METRICS)
        metrics = {key: json.loads(cell) for key, cell in row.items() if cell}
        yield path / "metrics.json", files.as_json(metrics)


def _read(path: Path) -> Any:
    return files.read_json(path) if path.is_file() else None


def _factored(found: Mapping[str, dict[str, Any] | None]) -> dict[str, Any]:
    """Splits dictionaries into their shared entries and each one's own."""
    there = [own for own in found.values() if own is not None]
    order = [*dict.fromkeys(key for own in there for key in own)]
    first = there[0] if there else {}
    shared = {
        key: value
        for key, value in first.items()
        if all(key in own and own[key] == value for own in there)
    }
    each = {
        name: None
        if own is None
        else {key: own[key] for key in own if key not in shared}
        for name, own in found.items()
    }
    return {"order": order, "all": shared, "each": each}


def _check_kept(folder: Path) -> None:
    if not (folder / SETTINGS).is_file():
        names = sorted(path.parent.name for path in KEPT.glob(f"*/{SETTINGS}"))
        raise InputError(
            f"NAME: expected one of {', '.join(names)}, received {folder.name}"
        )


def _shortened(value: Any) -> Any:
    """Removes the folders from paths, which depend on the machine."""
    if isinstance(value, dict):
        return {key: _shortened(own) for key, own in value.items()}
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name
    return value


def draw(folder: Path) -> str:
    """Draws table, figure and verdicts of a kept comparison."""
    from argparse import Namespace

    from common import cli, comparisons

    with tempfile.TemporaryDirectory() as made:
        restore(folder, Path(made))
        if not (Path(made) / "comparison.json").exists():
            raise InputError(f"{folder.name} has no finished seed to draw")
        with _kept(folder):
            name = files.read_json(Path(made) / "comparison.json")["experiment"]
            args = Namespace(**files.read_json(Path(made) / "args.json"))
            experiment = cli.find(name).for_flags(args)
        shown = comparisons.report(experiment, Path(made))
        for drawn in DRAWN:
            if (Path(made) / drawn).exists():
                shutil.copyfile(Path(made) / drawn, folder / drawn)
        files.make_folder(_figures())
        figure = f"{folder.name.replace('-', '_')}.png"
        shutil.copyfile(Path(made) / "comparison.png", _figures() / figure)
    return shown


def _figures() -> Path:
    return KEPT.parent / "figures"


def _summarise() -> None:
    """Draws the most important claims, and writes them into the pages."""
    from common import claims_figure

    rows = claims_figure.rows(KEPT)
    files.make_folder(_figures())
    claims_figure.draw(rows, _figures() / "claims.png")
    page = KEPT.parents[1] / PAGE
    if page.exists():
        claims_figure.insert(page, claims_figure.table(rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    parser = flags.Parser("results.py", __doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    what = "keep the measurements of a comparison"
    action = actions.add_parser("keep", help=what, description=what)
    action.add_argument(
        "source", type=Path, metavar="FOLDER", help="the comparison's folder"
    )
    action.add_argument(
        "name", type=flags.name, metavar="NAME", help="its name in results/"
    )
    what = "draw kept comparisons"
    action = actions.add_parser("draw", help=what, description=what)
    action.add_argument(
        "names",
        nargs="*",
        type=flags.name,
        metavar="NAME",
        help="names in results/ (default: all)",
    )
    what = "make a folder from kept results, to continue with --resume"
    action = actions.add_parser("restore", help=what, description=what)
    action.add_argument(
        "name", type=flags.name, metavar="NAME", help="a name in results/"
    )
    action.add_argument(
        "folder", type=Path, metavar="FOLDER", help="the new folder"
    )
    what = "print the claims of every experiment"
    actions.add_parser("claims", help=what, description=what)
    args = parser.parse_args(argv)
    try:
        check_tensorflow()
        if args.action == "keep":
            keep(args.source, KEPT / args.name)
        elif args.action == "restore":
            restore(KEPT / args.name, args.folder)
        elif args.action == "claims":
            from common import tables

            print(tables.of_rows([*claims.rows()]))
        else:
            kept = (path.parent.name for path in KEPT.glob(f"*/{SETTINGS}"))
            for name in args.names or sorted(kept):
                _check_kept(KEPT / name)
                print(f"{name}\n{draw(KEPT / name)}")
            _summarise()
    except InputError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    ending.execute(main)
