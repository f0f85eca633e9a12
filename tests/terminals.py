"""A script of the examples on a terminal of its own."""

import os
import pty
import signal
import subprocess
import sys


def start_on_terminal(script, *flags):
    """Starts `script`, a module, as its user would.

    Returns:
        The process and a function that reads what it shows, up to a text, or
        to the end without one.
    """
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, script.__file__, *map(str, flags)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=inside,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background it is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
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
