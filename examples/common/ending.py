"""A script as a program: its logs, and its early end.

It may end by Ctrl-C or by output that goes nowhere.
"""

import contextlib
import errno
import inspect
import io
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from common.errors import InputError

# 128 plus the number of the signal, as in shells.
INTERRUPTED = 128 + signal.SIGINT
CLOSED = 128 + 13  # SIGPIPE, which Windows does not have.

_interrupted = False


def execute(main: Callable[[], int]) -> NoReturn:
    """Runs a script's `main` as the program and exits with its code.

    Ctrl-C and a closed pipe (`| head`) end in one sentence and the exit code
    that a shell expects; so do a full disk, with exit code 1, and a missing
    package, with exit code 2.
    """
    global _interrupted
    _hide_logs()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # Closed before the start (`>&-`).
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
    # Readers of a pipe also get every line at once. A notebook has a different
    # kind of standard output.
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal may lack characters, such as the sign of a deviation.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    # Not if a shell made this a background job, which ignores Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    leave: Callable[[int], NoReturn] = sys.exit
    try:
        code = run(main, name=Path(sys.argv[0]).name)
        # Here, not at the interpreter's exit, so that a closed pipe is handled.
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        # A second Ctrl-C means not to wait for an orderly exit.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        code, _interrupted = INTERRUPTED, False
        _say("interrupted", stop)
    except ModuleNotFoundError as stop:
        package, *_ = str(stop.name).split(".")
        how = "pip install '.[examples]'"
        code = 2
        _say(f"error: the package {package} is not installed: {how}", stop)
    except OSError as stop:
        if isinstance(stop, BrokenPipeError):
            code, why = CLOSED, "nobody reads the output any more"
        elif stop.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = os.strerror(stop.errno)
            code, why = 1, f"the output cannot be written ({reason})"
            # HDF5, which has its own words for it, would crash at the exit:
            # it closes the file once more.
            leave = sys.exit if stop.strerror == reason else os._exit
        else:
            raise
        # The output that is left is flushed into nothing at the exit.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        _say(f"stopped, because {why}", stop)
    leave(code)


def run(main: Callable[..., int], *argv: Any, name: str = "") -> int:
    """The exit code of a script; an `InputError` is told in one sentence."""
    try:
        return main(*argv)
    except SystemExit as end:  # By --help or wrong flags.
        return end.code
    except InputError as error:
        name = name or Path(inspect.getfile(main)).name
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2


def _hide_logs() -> None:
    """Hides the lines that TensorFlow logs on every machine.

    Set TF_CPP_MIN_LOG_LEVEL to see them.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return
    # TensorFlow logs an error without a GPU's driver; 3 hides errors too.
    level = "2" if shutil.which("nvidia-smi") else "3"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = level
    # TensorFlow 2.21 takes the training of many models for a single function
    # that is traced again and again.
    logging.getLogger("tensorflow").addFilter(
        lambda record: "tf.function retracing" not in str(record.msg)
    )


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def check_interrupted() -> None:
    """Raises a KeyboardInterrupt again that was swallowed.

    Keras swallows it while it saves a model, by an `except:` around the first
    way to write its file, and Python swallows it in destructors.
    """
    global _interrupted
    if _interrupted:
        _interrupted = False
        raise KeyboardInterrupt


def _say(what: str, stop: BaseException) -> None:
    parts = [what, *getattr(stop, "__notes__", ())]
    # Not into the line of a progress bar.
    start = "\n" if sys.stdout.isatty() else ""
    with contextlib.suppress(OSError):  # Standard error may be that pipe.
        name = Path(sys.argv[0]).name
        print(f"{start}{name}: {'; '.join(parts)}", file=sys.stderr)
