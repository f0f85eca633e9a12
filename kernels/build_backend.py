"""The build backend: setuptools', which asks for a compiler and XLA's header.

No environment marker tells musl, or that the user has named a compiler.
"""

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 (the backend's other functions)

import build_library


def get_requires_for_build_wheel(config_settings=None):
    """What setuptools and build_library.py need for a wheel."""
    needed = build_meta.get_requires_for_build_wheel(config_settings)
    return needed + build_library.requirements()


get_requires_for_build_editable = get_requires_for_build_wheel
