"""`python -m keras_ln`: what runs here, and why.

Versions, the backend and its devices, whether the CPU kernels are in use, and
what each recurrent layer runs as with its default arguments.
"""

import importlib.metadata
import platform
from collections.abc import Iterator

import keras

from keras_ln import layers, ops
from keras_ln._keras import device_names
from keras_ln.version import __version__


def report() -> Iterator[str]:
    """The lines that are printed."""
    backend = keras.backend.backend()
    facts = {
        "keras_ln": __version__,
        "Keras": importlib.metadata.version("keras"),
        "backend": f"{backend} {importlib.metadata.version(backend)}",
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "devices": ", ".join(device_names()),
        "kernels": ops.recurrence.kernels(),
    }
    for name, fact in facts.items():
        yield f"{name:<9} {fact}"
    yield "layers"
    for name in layers.__all__:
        layer = getattr(layers, name)
        if not hasattr(layer, "as_problem"):
            continue
        chosen, reasons = ops.implementation(layer(1))
        why = reasons.get("native")
        # That there are no kernels was said above.
        known = why is None or facts["kernels"].endswith(why)
        yield f"  {name:<12} {chosen}" + ("" if known else f" (native: {why})")


def main() -> None:
    """Prints the report."""
    print("\n".join(report()))


if __name__ == "__main__":
    main()
