"""Scripts of the examples where the machine has two devices."""

import atexit
import functools
import json
import subprocess
import sys

from scripts import environment

# Devices have to be there before a framework starts, hence a process. It takes
# one script after another, since its start takes longer than most of them.
_CODE = """
import contextlib, importlib, io, json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # What is printed is no answer.
two = "--xla_force_host_platform_device_count=2"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {two}"
import tensorflow as tf
from common import ending
cpu = tf.config.list_physical_devices("CPU")[0]
halves = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, halves)
for line in sys.stdin:
    name, *flags = json.loads(line)
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            code = ending.run(importlib.import_module(name).main, flags)
        except Exception:
            code = 1
            traceback.print_exc()
    print(json.dumps([code, errors.getvalue()]), file=answers, flush=True)
"""


@functools.cache
def _process():
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    # Workers of pytest-xdist do not wait: it ends when its input is closed.
    atexit.register(process.communicate)
    return process


def run_on_two_devices(script, *flags):
    """How `script`, a module, ends that shares its batches.

    Returns:
        A `subprocess.CompletedProcess` with its exit code and standard error.
    """
    flags = [*map(str, flags), "--distribute", "data-parallel"]
    process = _process()
    print(json.dumps([script.__name__, *flags]), file=process.stdin, flush=True)
    answer = process.stdout.readline()
    assert answer, f"the process ended: {process.wait()}"
    code, errors = json.loads(answer)
    return subprocess.CompletedProcess(flags, code, None, errors)
