"""A Keras callback for runs that survive a kill at any moment.

The file is replaced as a whole and holds everything that a run needs to
continue, so that a kill can never leave parts that do not belong together.
"""

import contextlib
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from common import files
from common.errors import InputError

# NumPy and zipfile raise these for files that are truncated, damaged, pickled
# or of another kind.
_UNREADABLE = (OSError, EOFError, KeyError, RuntimeError, ValueError)
_UNREADABLE += (zipfile.BadZipFile,)
# The state of a run, besides its arrays.
_STATE = {
    "epoch": int,
    "stopped": bool,
    "variables": int,
    "callbacks": list,
    "torch": list,
    "arrays": int,
}
_NEVER = 2**31
# Keras' attributes of every callback.
_NO_STATE = ("params", "_model")


class Backup(keras.callbacks.BackupAndRestore):
    """`BackupAndRestore` that brings back everything, from one whole file.

    Beside weights and optimizer it keeps the states of the model's seed
    generators and of the other callbacks (the best value so far, waiting
    times, the history). It saves at the end of every Keras epoch. The caller
    deletes the file once the results are written.

    Args:
        callbacks: the callbacks whose numbers, arrays and lists of them
            belong to the state, in a fixed order. Texts are settings, such as
            a path that may have moved, and not part of the state.

    Attributes:
        epoch: the Keras epochs that the backup has seen, 0 without one.
        stopped: whether a callback had already ended the training.
    """

    def __init__(self, path: Path, callbacks: Sequence[Any] = ()):
        super().__init__(str(path.parent), delete_checkpoint=False)
        self.path = path
        self.callbacks = list(callbacks)
        self._torch_states: list[np.ndarray] = []
        self.epoch, self.stopped = 0, False
        if path.exists():
            state = self._read()[0]
            self.epoch, self.stopped = state["epoch"], state["stopped"]

    def _read(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                # NumPy checks no checksum if the header makes an array shorter
                # than it is.
                if damaged := archive.testzip():
                    raise zipfile.BadZipFile(f"{damaged} is damaged")
            with np.load(self.path, allow_pickle=False) as file:
                state = json.loads(str(file["state"]))
                _check_state(state)
                arrays = [file[f"a{i}"] for i in range(state["arrays"])]
            for values in (*state["callbacks"], {"torch": state["torch"]}):
                for value in values.values():
                    _decode(value, arrays)
        except _UNREADABLE as error:
            raise InputError(
                f"the backup {self.path} cannot be read ({error}); remove the "
                "folder and start the run again"
            ) from error
        return state, arrays

    def _variables(self) -> list[Any]:
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        # A model's variables include its seed generators'.
        return [*self.model.variables, *optimizer.variables]

    def _save_model(self) -> None:
        arrays = [keras.ops.convert_to_numpy(v) for v in self._variables()]
        state = {
            "epoch": self._current_epoch,
            "stopped": bool(self.model.stop_training),
            "variables": len(arrays),
            "callbacks": [_state_of(c, arrays) for c in self.callbacks],
            "torch": _encode(_get_torch_states(), arrays),
        }
        state["arrays"] = len(arrays)
        named = {f"a{i}": array for i, array in enumerate(arrays)}
        with files.replacing(self.path) as partial, partial.open("wb") as file:
            np.savez(file, state=np.array(json.dumps(state)), **named)

    def _load_model(self) -> None:
        if not self.path.exists():
            return
        # Everything is checked before anything is assigned.
        state, arrays = self._read()
        variables = self._variables()
        saved = [(a.shape, a.dtype) for a in arrays[: state["variables"]]]
        now = [keras.ops.convert_to_numpy(v) for v in variables]
        if saved != [(a.shape, a.dtype) for a in now]:
            raise InputError(
                f"the backup {self.path} belongs to a different model; "
                "choose another output folder"
            )
        torch_states = _decode(state["torch"], arrays)
        values = [
            {name: _decode(value, arrays) for name, value in own.items()}
            for own in state["callbacks"]
        ]
        fitting = len(values) == len(self.callbacks)
        fitting = fitting and all(map(_fits, self.callbacks, values))
        if not fitting or not _are_torch_states(torch_states):
            raise InputError(
                f"the backup {self.path} has the state of another run; choose "
                "another output folder"
            )
        for variable, array in zip(variables, arrays, strict=False):
            variable.assign(array)
        # Keras' `fit` starts there; a run that a callback ended has no more.
        self.model._initial_epoch = _NEVER if self.stopped else self.epoch
        for callback, own in zip(self.callbacks, values, strict=True):
            for name, value in own.items():
                setattr(callback, name, value)
        self._torch_states = torch_states

    def on_train_batch_begin(self, batch, logs=None):
        # Not earlier, because the data loader has just drawn a number.
        _set_torch_states(self._torch_states)
        self._torch_states = []


def _get_torch_states() -> list[np.ndarray]:
    """The states of torch's own random generators, one per device.

    Keras 3.15 uses them for dropout if a layer has no seed. Drop this when
    `test_resume.py` passes without it.
    """
    if keras.backend.backend() != "torch":
        return []
    import torch

    states = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
    return [state.numpy() for state in states]


def _are_torch_states(states: list[Any]) -> bool:
    """Whether torch, with at least as many devices, can use these states."""
    now = _get_torch_states()
    return len(states) <= len(now) and all(
        isinstance(own, np.ndarray)
        and (own.shape, own.dtype) == (there.shape, there.dtype)
        for own, there in zip(states, now, strict=False)
    )


def _set_torch_states(states: list[np.ndarray]) -> None:
    if states:
        import torch

        cpu, *cuda = map(torch.from_numpy, states)
        torch.set_rng_state(cpu)
        torch.cuda.set_rng_state_all(cuda)


def _state_of(callback: Any, arrays: list[np.ndarray]) -> dict[str, Any]:
    """The attributes that are state; arrays move to the end of `arrays`."""
    state = {}
    for name, value in vars(callback).items():
        if name not in _NO_STATE and not isinstance(value, str):
            # A file or a function is rebuilt, not restored.
            with contextlib.suppress(TypeError):
                state[name] = _encode(value, arrays)
    return state


def _encode(value: Any, arrays: list[np.ndarray]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, (list, tuple)):
        return [_encode(item, arrays) for item in value]
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {"dict": {k: _encode(v, arrays) for k, v in value.items()}}
    raise TypeError(type(value))


def _decode(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    number = value.get("array")
    if type(number) is int and value.keys() == {"array"}:
        if 0 <= number < len(arrays):
            return arrays[number]
    if value.keys() == {"dict"} and isinstance(value["dict"], dict):
        return {k: _decode(v, arrays) for k, v in value["dict"].items()}
    raise ValueError(f"it has {value!r} in place of a state")


def _check_state(state: Any) -> None:
    """`ValueError` unless this may be the state of a run."""
    if not isinstance(state, dict):
        raise ValueError(f"its state is {state!r}")
    for name, kind in _STATE.items():
        value = state.get(name)
        # True is an int too.
        if type(value) is not kind or (kind is int and value < 0):
            raise ValueError(f"its {name} is {value!r}")
    if not all(isinstance(own, dict) for own in state["callbacks"]):
        raise ValueError(f"its callbacks are {state['callbacks']!r}")


def _fits(callback: Any, values: dict[str, Any]) -> bool:
    """Whether these may be attributes of the callback that are state."""
    return all(
        name not in _NO_STATE
        and not hasattr(type(callback), name)
        and not isinstance(value, str)
        # An attribute that is None, here or there, may get any kind of value.
        and (
            value is None
            or vars(callback).get(name) is None
            or _kind(value) is _kind(vars(callback)[name])
        )
        for name, value in values.items()
    )


def _kind(value: Any) -> type:
    if isinstance(value, (int, float, np.generic)):
        return float
    return list if isinstance(value, tuple) else type(value)
