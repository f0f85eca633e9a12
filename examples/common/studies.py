"""The flags and the folder of scripts that train no kinds to compare."""

import contextlib
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from common import files, flags
from common.errors import check_backend


def parse(
    file: str,
    description: str,
    sizes: Mapping[str, tuple[str, int, int]],
    argv: Sequence[str] | None = None,
    *,
    least: Mapping[str, int] | None = None,
    backend: str | None = None,
) -> Namespace:
    """The flags of a script.

    Args:
        file: the script's `__file__`.
        description: the text of --help.
        sizes: for every size that is a flag (with underscores), its meaning,
            its default and its value with --smoke.
        argv: the words of the command line.
        least: the smallest values of sizes, if they are not 1.
        backend: the only backend of Keras that it runs on, if it is only one.
    """
    name = Path(file).stem
    parser = flags.Parser(f"{name}.py", description)
    for size, (meaning, usual, smoke) in sizes.items():
        values = f"{meaning} (default: {usual}, with --smoke {smoke})"
        flags.count(size, values, (least or {}).get(size, 1)).add_to(parser)
    seed = flags.count("seed", "seed of all numbers (default: 1)")
    for flag in (seed, flags.OUTPUT_DIR, flags.SMOKE):
        flag.add_to(parser)
    args = parser.parse_args(argv)
    args.seed = args.seed or 1
    for size, (_, *values) in sizes.items():
        if vars(args)[size] is None:
            setattr(args, size, values[args.smoke])
    args.output_dir = args.output_dir or str(Path("runs") / name)
    files.check_folder(Path(args.output_dir))
    if backend is not None:
        check_backend(backend)
    return args


@contextlib.contextmanager
def folder(args: Namespace) -> Iterator[Path]:
    """The folder of the results, which no other process may use."""
    import keras

    from common import runs

    own = Path(args.output_dir)
    record = {"backend": keras.backend.backend(), **vars(args)}
    del record["output_dir"]
    with files.alone_in(own):
        # The same flags give the same files, so they are written again.
        runs.open_folder(own, record, resume=True)
        yield own
    print(f"Tables and figure are in {own}.")
