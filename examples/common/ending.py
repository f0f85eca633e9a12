"""A script as a program: what it shows, and how it ends before its time.

By Ctrl-C, and with output that nobody reads; and how it goes on in a new
process, where the old one would be killed.
"""

import contextlib
import io
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

# 128 and the number of the signal, as shells have it.
INTERRUPTED = 128 + signal.SIGINT
CLOSED = 128 + 13  # SIGPIPE, which Windows does not have.

# XLA takes up to a thousand for a model and never gives them back. Linux, which
# allows a process 65,530, would end one that trains a hundred models.
MANY_MEMORY_MAPS = 45_000

_interrupted = False


def execute(main: Callable[[], int]) -> NoReturn:
    """Runs a script's `main` as the program and exits with its code.

    Ctrl-C and a closed pipe (`| head`) end in one sentence and the exit code
    that a shell expects.
    """
    global _interrupted
    _hide_logs()
    # Lines are read as they are written, also from a pipe. A notebook has
    # another kind of standard output.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    # Not where a shell made this a background job, which ignores Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        try:
            code = main()
        except SystemExit as end:  # Of the flags: --help, or wrong ones.
            code = end.code
        # Here, not at the interpreter's exit: below a closed pipe is handled.
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        # Who presses it again does not want to wait for an orderly exit.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        code, _interrupted = INTERRUPTED, False
        _say("interrupted", stop)
    except BrokenPipeError as stop:
        code = CLOSED
        # What is left to be flushed at the exit has to go somewhere.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        _say("stopped, since nobody reads the output any more", stop)
    sys.exit(code)


def _hide_logs() -> None:
    """Keeps off the screen what TensorFlow says on every machine.

    Whoever sets TF_CPP_MIN_LOG_LEVEL sees it.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return
    # Without a GPU's driver TensorFlow calls that an error; 3 hides errors too.
    level = "2" if shutil.which("nvidia-smi") else "3"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = level
    # TensorFlow 2.21 takes what trains one model after the other for one
    # function that is traced again and again.
    logging.getLogger("tensorflow").addFilter(
        lambda record: "tf.function retracing" not in str(record.msg)
    )


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def check_interrupted() -> None:
    """Raises a KeyboardInterrupt again that was swallowed.

    Keras does that where it saves a model, by an `except:` around the first
    way to write its file, and Python in the destructors of objects.
    """
    global _interrupted
    if _interrupted:
        _interrupted = False
        raise KeyboardInterrupt


@contextlib.contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Adds to what `execute` says that the run in `folder` can go on."""
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError) as stop:
        # What `add_note` does, which Python 3.10 has not.
        note = f"--resume goes on with the run in {folder}"
        stop.__notes__ = [*getattr(stop, "__notes__", ()), note]
        raise


def renew(name: str) -> None:
    """Goes on in a new process, with --resume, if this one is nearly full.

    It does so only as a program: others have more to do than this script.

    Args:
        name: the script's, without its suffix.
    """
    if Path(sys.argv[0]).stem != name or _memory_maps() < MANY_MEMORY_MAPS:
        return
    command = list(sys.orig_argv)
    if "--resume" not in command:
        command.append("--resume")
    print("Going on in a new process: this one has too many programs of XLA.")
    sys.stdout.flush()
    os.execv(sys.executable, command)


def _memory_maps() -> int:
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


def _say(what: str, stop: BaseException) -> None:
    parts = [what, *getattr(stop, "__notes__", ())]
    # Not into the line of a progress bar.
    start = "\n" if sys.stdout.isatty() else ""
    with contextlib.suppress(OSError):  # Standard error may be that pipe.
        name = Path(sys.argv[0]).name
        print(f"{start}{name}: {'; '.join(parts)}", file=sys.stderr)
