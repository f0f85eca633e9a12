"""XLA's settings for the tests, of those that the installed versions know."""

import importlib.metadata
import re

# To optimise a program takes longer than to run it on so little.
ALWAYS = "--xla_backend_optimization_level=0"
# Fewer functions, and one thread to compile them.
QUICK_TO_COMPILE = (
    "--xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)

# Versions that know the others, from the first to before the last. XLA ends
# the process where it does not know one.
KNOW_IT = {
    "jaxlib": ((0, 5, 3), (0, 11, 1)),
    "tensorflow": ((2, 20), (2, 22)),
    "tensorflow-cpu": ((2, 20), (2, 22)),
}


def installed():
    """Versions of the packages that have XLA in them, without importing one."""
    versions = {}
    for name in KNOW_IT:
        for found in importlib.metadata.distributions(name=name):
            versions[name] = found.version
    return versions


def flags(versions):
    """XLA_FLAGS that all of the versions know, by names of packages."""
    for name, version in versions.items():
        first, last = KNOW_IT[name]
        if not first <= numbers(version) < last:
            return ALWAYS
    return f"{ALWAYS} {QUICK_TO_COMPILE}"


def numbers(version):
    """(2, 22, 0) of "2.22.0rc0"."""
    return tuple(map(int, re.findall(r"\.?(\d+)", version)[:3]))
