"""`python -m keras_ln`: a report; with `gpu`, a check of the GPU kernels.

The report has versions, devices, whether the CPU extension and the GPU kernels
are in use, and which implementation each recurrent layer runs, and why.
"""

import importlib.metadata
import platform
import sys
from collections.abc import Iterator

import keras

from keras_ln import engine, layers
from keras_ln._keras import device_names
from keras_ln.version import __version__

INSTALL = (
    "to install it: pip install ./kernels in a checkout; once published, "
    "pip install keras-ln-kernels"
)


def report() -> Iterator[str]:
    """The lines of the report."""
    backend = keras.backend.backend()
    facts = {
        "keras_ln": __version__,
        "Keras": importlib.metadata.version("keras"),
        "backend": f"{backend} {importlib.metadata.version(backend)}",
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "devices": ", ".join(device_names()),
        "CPU extension": engine.kernels(),
        "GPU kernels": engine.gpu_kernels(),
    }
    there = {"native": facts["CPU extension"], "cuda": facts["GPU kernels"]}
    rows, installs = [], False
    for name in layers.__all__:
        layer = getattr(layers, name)
        if not hasattr(layer, "as_problem"):
            continue
        chosen, reasons = engine.implementation(layer(1))
        # On a GPU layers have another reason.
        native = reasons.get("native", "")
        installs = installs or native.endswith("is not installed.")
        # Said above.
        if there["cuda"].startswith("none."):
            reasons.pop("cuda", None)
        why = [
            f" ({other}: {reasons[other]})"
            for other, fact in there.items()
            if other in reasons and not fact.endswith(reasons[other])
        ]
        rows.append(f"  {name:<12} {chosen}{''.join(why)}")
    for name, fact in facts.items():
        yield f"{name:<13}  {fact}"
        if name == "CPU extension" and installs:
            yield f"{'':<13}  {INSTALL}"
    yield "layers"
    yield from rows


def main() -> None:
    """Prints the report, or checks the GPU kernels."""
    if sys.argv[1:2] == ["gpu"]:
        from keras_ln.gpu import command

        sys.exit(command.main(sys.argv[2:]))
    print("\n".join(report()))


if __name__ == "__main__":
    main()
