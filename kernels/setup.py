"""The parts of the build that pyproject.toml cannot say."""

import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

# The build runs with the folder of this file as the current one, which is not
# always on the path.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_library  # noqa: E402  (its folder must be on the path first)


class BuildWithLibrary(build_py):
    """Adds the compiled library and the GPU kernels' sources to the package."""

    def run(self):
        """Copies the Python files and sources, and compiles."""
        folder = build_library.PACKAGE
        if not self.editable_mode:
            folder = Path(self.build_lib, folder.name)
            # What an earlier build left there may be for another platform.
            shutil.rmtree(folder, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            # So may be what is compiled beside the sources.
            for built in folder.glob("libkeras_ln_kernels.*"):
                built.unlink()
            shutil.copytree(build_library.SOURCE / "cuda", folder / "cuda")
        build_library.build(folder)


class PlatformWheel(bdist_wheel):
    """A wheel for one platform and every Python: ctypes loads the library."""

    def get_tag(self):
        """The wheel's tags."""
        target = build_library.target_of()
        platform = target.wheel
        if build_library.own_compiler():
            # It links the C library of its system, which may be newer.
            platform = f"linux_{target.machine}"
            if target.suffix != ".so":
                platform = super().get_tag()[2]
        return "py3", "none", platform


class WithLibrary(Distribution):
    """A package that is installed where compiled ones are."""

    def has_ext_modules(self):
        """There is a library, though Python does not import it."""
        return True


setup(
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
    distclass=WithLibrary,
)
