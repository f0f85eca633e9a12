"""Scripts that train no kinds to compare: their flags and their folder."""

import dataclasses
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import files, flags
from common.errors import InputError, check_backend, check_tensorflow


@dataclasses.dataclass(frozen=True)
class Study:
    """The description of a script.

    Attributes:
        name: the script's name, also of its default output folder.
        description: the text of --help.
        sizes: for every size that is a flag (with underscores), its meaning,
            its default and its value with --smoke.
        measure: a function of flags and folder that writes the files and
            prints the tables; it imports the frameworks.
        backend: the only backend of Keras that it runs on, if it is only one.
        least: the smallest values of sizes, if they are not 1.
    """

    name: str
    description: str
    sizes: Mapping[str, tuple[str, int, int]]
    measure: Callable[[Namespace, Path], None]
    backend: str | None = None
    least: Mapping[str, int] = dataclasses.field(default_factory=dict)


def run(study: Study, argv: Sequence[str] | None = None) -> int:
    """Runs a script; returns the exit code 0, or exits with 2."""
    parser = flags.Parser(f"{study.name}.py", study.description)
    for name, (meaning, usual, smoke) in study.sizes.items():
        values = f"{meaning} (default: {usual}, with --smoke {smoke})"
        flags.add_counts(parser, study.least.get(name, 1), **{name: values})
    parser.add_argument(
        "--seed",
        type=flags.positive_integer,
        default=1,
        metavar="N",
        help="seed of all random numbers (default: 1)",
    )
    parser.add_argument(
        "--output-dir",
        metavar="DIR",
        help="the folder of the results (default: runs/SCRIPT)",
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="run for a minute at most, to see that it works",
    )
    args = parser.parse_args(argv)
    for name, (_, *sizes) in study.sizes.items():
        if vars(args)[name] is None:
            setattr(args, name, sizes[args.smoke])
    folder = Path(args.output_dir or Path("runs") / study.name)
    try:
        check_tensorflow()
        files.check_folder(folder)
        if study.backend is not None:
            check_backend(study.backend)

        import keras

        from common import single

        record: dict[str, Any] = {
            "backend": keras.backend.backend(),
            **vars(args),
        }
        del record["output_dir"]
        # The same flags give the same files, so they are written again.
        with files.alone_in(folder):
            single.open_folder(folder, record, resume=True)
            study.measure(args, folder)
    except InputError as error:
        parser.error(str(error))
    print(f"Tables and figure are in {folder}.")
    return 0
