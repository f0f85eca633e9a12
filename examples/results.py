"""Finished comparisons: kept as small files, and drawn again from these.

    python examples/results.py keep runs/sequential_mnist sequential-mnist
    python examples/results.py draw sequential-mnist
    python examples/results.py restore sequential-mnist runs/sequential_mnist

`keep` copies what was measured, and no model, into a folder of that name in
`results/` beside this file; `draw` writes its table, figures and verdicts anew
and prints them, of all that are kept unless some are named. `restore` copies it
back into a folder, for more seeds or what was left to do: the command of the
comparison goes on from there with --resume and --output-dir.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import ending, files, flags
from common.errors import InputError, check_tensorflow

KEPT = Path(__file__).resolve().parent / "results"
# Of a comparison, and of each of its runs. Figures and tables are drawn anew.
OF_ALL = ("args.json", "comparison.json", "floors.json", "tuning.csv")
# One of them is there as soon as something is finished: a seed, a grid.
FINISHED = ("comparison.json", "tuning.csv")
OF_RUN = ("args.json", "environment.json", "history.csv", "metrics.json")


def copy(source: Path, folder: Path) -> None:
    """Copies what was measured: the grid, and every run that is finished."""
    ended = {path.parent.name for path in source.glob("*/metrics.json")}
    record = source / "comparison.json"
    if record.is_file():
        # Among them those that diverged.
        ended |= {run["folder"] for run in files.read_json(record)["runs"]}
    for own, names in (("", OF_ALL), *((own, OF_RUN) for own in ended)):
        files.make_folder(folder / own)
        for name in names:
            path = source / own / name
            if path.suffix == ".csv" and path.exists():
                files.write_text(folder / own / name, path.read_text("utf-8"))
            elif path.exists():
                files.write_json(
                    folder / own / name, _shortened(files.read_json(path))
                )


def keep(source: Path, folder: Path) -> None:
    """Copies a comparison into the folder of those that are kept.

    Raises:
        InputError: if it is no comparison, or neither its grid nor one of its
            seeds is finished.
    """
    if not any((source / name).is_file() for name in FINISHED):
        raise InputError(f"{source} has no {' and no '.join(FINISHED)}")
    copy(source, folder)


def restore(source: Path, folder: Path) -> None:
    """Copies what is kept into a folder with which the comparison goes on.

    Raises:
        InputError: if nothing is kept there, or the folder has something in it.
    """
    _check_kept(source)
    files.check_folder(folder)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty")
    copy(source, folder)


def _check_kept(folder: Path) -> None:
    if not (folder / "args.json").is_file():
        raise InputError(
            f"nothing of the name {folder.name} is in {folder.parent}"
        )


def _shortened(value: Any) -> Any:
    """Without the folders of paths, which are those of one machine."""
    if isinstance(value, dict):
        return {key: _shortened(own) for key, own in value.items()}
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name
    return value


def draw(folder: Path) -> str:
    """Draws table, figures and verdicts of a comparison that is kept."""
    import importlib
    from argparse import Namespace

    from common import comparisons

    record = files.read_json(folder / "comparison.json")
    args = Namespace(**files.read_json(folder / "args.json"))
    experiment = importlib.import_module(record["experiment"]).EXPERIMENT
    return comparisons.report(experiment, experiment.procedure(args), folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    parser = flags.Parser("results.py", __doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    what = "copy what a comparison has measured"
    action = actions.add_parser("keep", help=what, description=what)
    action.add_argument("source", type=Path, metavar="FOLDER")
    action.add_argument("name", type=flags.name, metavar="NAME")
    what = "draw what is kept"
    action = actions.add_parser("draw", help=what, description=what)
    action.add_argument("names", nargs="*", type=flags.name, metavar="NAME")
    what = "copy what is kept into a folder, to go on with --resume"
    action = actions.add_parser("restore", help=what, description=what)
    action.add_argument("name", type=flags.name, metavar="NAME")
    action.add_argument("folder", type=Path, metavar="FOLDER")
    args = parser.parse_args(argv)
    try:
        check_tensorflow()
        if args.action == "keep":
            keep(args.source, KEPT / args.name)
            return 0
        if args.action == "restore":
            restore(KEPT / args.name, args.folder)
            return 0
        names = args.names or sorted(
            path.parent.name for path in KEPT.glob("*/comparison.json")
        )
        for name in names:
            _check_kept(KEPT / name)
            if not (KEPT / name / "comparison.json").is_file():
                raise InputError(f"{name} has no finished seed to draw")
            print(f"{name}\n{draw(KEPT / name)}")
    except InputError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    ending.execute(main)
