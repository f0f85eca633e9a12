"""A Keras callback for runs that survive a kill at any moment.

The file is replaced as a whole and holds everything that a run needs to
continue, so that a kill can never leave parts that do not belong together.
"""

import contextlib
import hashlib
import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from common import files
from common.errors import InputError

# NumPy and zipfile raise these for files of another kind, and with a pickle.
_UNREADABLE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile)
_DIGEST = 32  # Bytes of SHA-256 in front of the file's content.
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
            whole = self.path.read_bytes()
            digest, content = whole[:_DIGEST], whole[_DIGEST:]
            if hashlib.sha256(content).digest() != digest:
                raise ValueError("its content has another checksum")
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = [file[f"a{i}"] for i in range(len(file.files) - 1)]
                text = str(file["state"])
        except _UNREADABLE as error:
            raise InputError(
                f"the backup {self.path} cannot be read ({error}); remove the "
                "folder and start the run again"
            ) from error

        def decode(own: dict[str, Any]) -> Any:
            return arrays[own["array"]] if own.keys() == {"array"} else own

        return json.loads(text, object_hook=decode), arrays

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
            "names": [type(c).__name__ for c in self.callbacks],
            "callbacks": [_state_of(c, arrays) for c in self.callbacks],
            "torch": _encode(_get_torch_states(), arrays),
        }
        named = {f"a{i}": array for i, array in enumerate(arrays)}
        content = io.BytesIO()
        np.savez(content, state=np.array(json.dumps(state)), **named)
        digest = hashlib.sha256(content.getbuffer()).digest()
        with files.replacing(self.path) as partial, partial.open("wb") as file:
            file.write(digest)
            file.write(content.getbuffer())

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
        if state["names"] != [type(c).__name__ for c in self.callbacks]:
            raise InputError(
                f"the backup {self.path} has the state of another run; choose "
                "another output folder"
            )
        for variable, array in zip(variables, arrays, strict=False):
            variable.assign(array)
        # Keras' `fit` starts there; a run that a callback ended has no more.
        self.model._initial_epoch = _NEVER if self.stopped else self.epoch
        for callback, own in zip(
            self.callbacks, state["callbacks"], strict=True
        ):
            vars(callback).update(own)
        self._torch_states = state["torch"]

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


def _set_torch_states(states: list[np.ndarray]) -> None:
    if states:
        import torch

        cpu, *cuda = map(torch.from_numpy, states)
        torch.set_rng_state(cpu)
        torch.cuda.set_rng_state_all(cuda[: torch.cuda.device_count()])


def _state_of(callback: Any, arrays: list[np.ndarray]) -> dict[str, Any]:
    """The attributes that are state; arrays move to the end of `arrays`."""
    state = {}
    for name, value in vars(callback).items():
        if name not in _NO_STATE and not isinstance(value, str):
            # A file or a function is rebuilt, not restored.
            with contextlib.suppress(TypeError, ValueError):
                state[name] = _encode(value, arrays)
    return state


def _encode(value: Any, arrays: list[np.ndarray]) -> Any:
    """A value as JSON has it; its arrays move to the end of `arrays`."""

    def default(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return {"array": len(arrays) - 1}
        raise TypeError(type(value))

    return json.loads(json.dumps(value, default=default))
