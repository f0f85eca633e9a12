"""Keras callbacks: what a run keeps, shows and stops at."""

import math
import time
from pathlib import Path
from typing import Any

import keras

import keras_ln
from common import ending, files
from common.errors import NonFiniteLossError


class Checkpoint(keras.callbacks.ModelCheckpoint):
    """`ModelCheckpoint` that replaces its file as a whole."""

    def _save_model(self, epoch, batch, logs):
        if self._should_save_model(epoch, batch, logs, self.filepath):
            with files.replacing(Path(self.filepath)) as partial:
                self.model.save(partial)


class History(keras.callbacks.CSVLogger):
    """`CSVLogger` that adds updates and seconds and keeps all its rows.

    Attributes:
        rows: one dictionary per Keras epoch, from the first, also after a
            resume: `epoch` (passes over the training data, a fraction
            where a Keras epoch is part of one), `updates`, `seconds` so far,
            and the logs.
        seconds: the time spent, of all sessions that the run took.
    """

    def __init__(self, path: Path, updates: int, updates_per_pass: int):
        super().__init__(str(path))
        self.updates = updates
        self.updates_per_pass = updates_per_pass
        self.rows: list[dict[str, float]] = []
        self.seconds = 0.0
        self._start = 0.0

    def on_train_begin(self, logs=None):
        pass  # The base class would empty the file.

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds += time.perf_counter() - self._start
        updates = (epoch + 1) * self.updates
        self.rows.append(
            {
                "epoch": updates / self.updates_per_pass,
                "updates": updates,
                "seconds": round(self.seconds, 3),
                **{key: float(value) for key, value in (logs or {}).items()},
            }
        )
        files.write_csv(Path(self.filename), self.rows)


class Further(keras.callbacks.Callback):
    """Adds what a further part of the data says to the logs.

    Args:
        data: as of `model.evaluate`.
        prefix: what its names begin with.
    """

    def __init__(self, data: Any, prefix: str):
        super().__init__()
        self.data = data
        self.prefix = prefix

    def on_epoch_end(self, epoch, logs=None):
        found = self.model.evaluate(self.data, verbose=0, return_dict=True)
        logs |= {self.prefix + name: value for name, value in found.items()}


class FreshStatistics(keras.callbacks.Callback):
    """Averages the batch statistics anew before every evaluation.

    Moving averages lag behind the weights, and over many steps of a recurrent
    layer small differences from the batches add up. Training sees the
    batches' own statistics. Layers that have an attribute `averaging` are
    told.

    Args:
        batches: what the model learns from.
        number: how many of them are averaged.
    """

    def __init__(self, batches: Any, number: int):
        super().__init__()
        self.batches = batches
        self.number = number

    def on_test_begin(self, logs=None):
        model = self.model
        told = [layer for layer in model.layers if hasattr(layer, "averaging")]
        # For so few batches XLA would not pay.
        compiled, model.jit_compile = model.jit_compile, False
        for layer in told:
            layer.averaging = True
        keras_ln.reestimate_statistics(model, self.batches, steps=self.number)
        for layer in told:
            layer.averaging = False
        model.jit_compile = compiled


class EpochLine(keras.callbacks.Callback):
    """Prints one line per Keras epoch: for pipes and files, not terminals."""

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        seconds = time.perf_counter() - self._start
        parts = [
            f"epoch {epoch + 1}/{self.params['epochs']}",
            f"{seconds:.1f} s",
            *(f"{key} {float(value):.4g}" for key, value in logs.items()),
        ]
        print("  ".join(parts))


class StopOnCtrlC(keras.callbacks.Callback):
    """Ends the training where Ctrl-C was pressed and nothing came of it."""

    def on_epoch_begin(self, epoch, logs=None):
        ending.check_interrupted()


class StopOnNonFinite(keras.callbacks.TerminateOnNaN):
    """`TerminateOnNaN` that names the update and spares the checkpoints.

    It has to stand before the callbacks that save.
    """

    def __init__(self, updates: int):
        super().__init__(raise_error=True)
        self.updates = updates
        self._epoch = 0
        self._finite = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._finite = epoch, 0

    def on_batch_end(self, batch, logs=None):
        self._check("loss", logs, self._finite + 1, batch + 1)
        self._finite = batch + 1

    def on_epoch_end(self, epoch, logs=None):
        # The last update may have spoilt weights that no training loss saw.
        self._check("val_loss", logs, self.updates, self.updates)

    def _check(self, key, logs, first, last):
        loss = float((logs or {}).get(key, 0.0))
        if math.isfinite(loss):
            return
        start = self._epoch * self.updates
        where = f"update {start + last}"
        if first < last:
            where = f"updates {start + first} to {start + last}"
        raise NonFiniteLossError(
            f"{key} is {loss} at {where}; the last good model is kept, and a "
            "smaller --learning-rate may help"
        )
