"""`python -m keras_ln`: a report on this installation.

It prints versions, the backend and its devices, whether the CPU kernels are in
use, and how each recurrent layer runs with its default arguments, and why.
"""

import importlib.metadata
import platform
from collections.abc import Iterator

import keras

from keras_ln import layers, ops
from keras_ln._keras import device_names
from keras_ln.version import __version__

INSTALL = (
    "to install them: pip install ./kernels in a checkout; once published, "
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
        "kernels": ops.recurrence.kernels(),
    }
    chosen, why = {}, {}
    for name in layers.__all__:
        layer = getattr(layers, name)
        if hasattr(layer, "as_problem"):
            chosen[name], reasons = ops.implementation(layer(1))
            why[name] = reasons.get("native") or ""
    for name, fact in facts.items():
        yield f"{name:<9} {fact}"
    # Not on a GPU: the layers have another reason there.
    if any(reason.endswith("is not installed.") for reason in why.values()):
        yield f"{'':<9} {INSTALL}"
    yield "layers"
    for name, reason in why.items():
        # The line "kernels" has said it if there are none.
        known = facts["kernels"].endswith(reason)
        yield f"  {name:<12} {chosen[name]}" + (
            "" if known else f" (native: {reason})"
        )


def main() -> None:
    """Prints the report."""
    print("\n".join(report()))


if __name__ == "__main__":
    main()
