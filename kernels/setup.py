"""The parts of the build that pyproject.toml cannot say."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

# The build runs with the folder of this file as the current one, which is not
# always on the path.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_library  # noqa: E402  (its folder must be on the path first)


class BuildWithLibrary(build_py):
    """Adds the compiled library to the package."""

    def run(self):
        """Copies the Python files, and compiles."""
        super().run()
        folder = build_library.PACKAGE
        if not self.editable_mode:
            folder = Path(self.build_lib, "keras_ln_kernels")
        build_library.build(folder)


class PlatformWheel(bdist_wheel):
    """A wheel for one platform and every Python: ctypes loads the library."""

    def finalize_options(self):
        """Says that there is a library."""
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        """The wheel's tags."""
        target = build_library.TARGETS[build_library.target_name()]
        return "py3", "none", target.wheel


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})
