"""A script of the examples where the machine has two devices."""

import os
import subprocess
import sys

# Devices have to be there before a framework starts, hence a process.
_CODE = """
import importlib, os, sys
two = "--xla_force_host_platform_device_count=2"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {two}"
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
halves = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, halves)
sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))
"""


def run_on_two_devices(script, *flags):
    """The ended process of `script`, a module, sharing its batches."""
    command = [sys.executable, "-c", _CODE, script.__name__, *flags]
    return subprocess.run(
        [*command, "--distribute", "data-parallel"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
