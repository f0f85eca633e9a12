"""The two ways in which a script ends early, each with one sentence."""

import importlib.util


class InputError(Exception):
    """A flag, a file or a folder that cannot be used: exit code 2."""


class NonFiniteLossError(Exception):
    """Training whose loss became infinite or NaN: exit code 1."""


def check_backend(name: str) -> None:
    """Refuses to start on another backend of Keras, or without it."""
    if importlib.util.find_spec(name) is None:
        raise InputError(
            f"the script runs on {name}, which is not installed: "
            f"pip install '.[{name}]'"
        )
    import keras

    if keras.backend.backend() != name:
        raise InputError(
            f"the script runs on the backend {name}, not on "
            f"{keras.backend.backend()}: set KERAS_BACKEND={name}"
        )
