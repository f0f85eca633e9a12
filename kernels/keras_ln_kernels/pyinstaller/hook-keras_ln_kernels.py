"""Collects the CPU extension's library, its digest and the GPU kernels."""

from PyInstaller.compat import is_darwin
from PyInstaller.utils.hooks import collect_data_files, collect_dynamic_libs

binaries = collect_dynamic_libs("keras_ln_kernels")
# On macOS PyInstaller signs the library anew, so the digest would differ. The
# system itself compares the bytes with the signature there.
datas = collect_data_files(
    "keras_ln_kernels", excludes=["*.sha256"] if is_darwin else []
)
