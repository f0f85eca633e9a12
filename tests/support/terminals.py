"""A script of the examples on a terminal of its own."""

import os
import pty
import signal
import subprocess
import sys

from scripts import environment


def start_on_terminal(script, *flags):
    """Starts `script`, a module, as its user would.

    Returns:
        The process and a function that reads what it shows, up to a text, or
        to the end without one.
    """
    terminal, inside = pty.openpty()
    # Where the tests run in the background Ctrl-C is ignored, in children too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, script.__file__, *map(str, flags)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=inside,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    os.close(inside)

    def read(until=None):
        seen = ""
        while until is None or until not in seen:
            try:
                seen += os.read(terminal, 1).decode("latin-1")
            except OSError:  # What Linux says at the end.
                assert until is None, f"ended early: {seen}"
                break
        return seen

    return process, read
