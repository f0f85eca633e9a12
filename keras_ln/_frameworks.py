"""Checks that the framework on which Keras would run is installed.

Otherwise importing Keras ends in an error such as "No module named
'tensorflow'", even if another framework is installed. So the check runs before
Keras is imported, and imports no framework.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

_FRAMEWORKS = ("tensorflow", "jax", "torch")
_VARIABLE = "by KERAS_BACKEND"


def reason() -> str | None:
    """Why keras_ln cannot be imported, and how to mend it; or None."""
    if _choice()[0] == "openvino":
        return None  # Keras needs none of the frameworks for inference there.
    found = [name for name in _FRAMEWORKS if _is_installed(name)]
    if not found:
        return (
            "keras_ln runs on TensorFlow, JAX or torch, and finds none of "
            "them. Install one, for example: pip install tensorflow"
        )
    if "keras" in sys.modules:
        return None  # Keras has chosen a framework, and found it.
    name, place = _choice()
    if name not in _FRAMEWORKS or name in found:
        return None
    lines = " or ".join(f"KERAS_BACKEND={other}" for other in found)
    # The variable wins over the file.
    in_file = f"; or `backend` in {_file()}" if place != _VARIABLE else ""
    return (
        f"Keras would run on {name}, {place}, which is not installed here. Set "
        f"the environment variable {lines} before Keras is imported, in Python "
        f'with os.environ["KERAS_BACKEND"] = "{found[0]}"{in_file}.'
    )


def _choice() -> tuple[str, str]:
    """The framework that Keras will choose, and the setting that decides."""
    if name := os.environ.get("KERAS_BACKEND"):
        return name, _VARIABLE
    try:
        return json.loads(_file().read_text())["backend"], "by keras.json"
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow", "its default"


def _file() -> Path:
    """The file in which Keras looks for its settings."""
    if "KERAS_HOME" in os.environ:
        folder = Path(os.environ["KERAS_HOME"])
    else:
        # Not Path.home(), which raises an error if the user is unknown.
        home = Path(os.path.expanduser("~"))
        folder = (home if os.access(home, os.W_OK) else Path("/tmp")) / ".keras"
    return folder.expanduser() / "keras.json"


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # A module without a spec is imported already.
        return True
