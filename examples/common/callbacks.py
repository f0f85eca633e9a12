"""Keras callbacks that keep, show and stop a run."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

import keras_ln
from common import ending, files
from common.errors import NonFiniteLossError

# The numbers for averaging batch statistics before an evaluation, at most.
AVERAGED_EXAMPLES, AVERAGED_BATCHES = 3_200, 100


class Checkpoint(keras.callbacks.ModelCheckpoint):
    """`ModelCheckpoint` that replaces its file as a whole."""

    def _save_model(self, epoch, batch, logs):
        if self._should_save_model(epoch, batch, logs, self.filepath):
            with files.replacing(Path(self.filepath)) as partial:
                self.model.save(partial)


class History(keras.callbacks.CSVLogger):
    """`CSVLogger` that adds updates and seconds and keeps all its rows."""

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
        row = {"epoch": updates / self.updates_per_pass, "updates": updates}
        row["seconds"] = round(self.seconds, 3)
        row |= {key: float(value) for key, value in (logs or {}).items()}
        self.rows.append(row)
        files.write_csv(Path(self.filename), self.rows)


class Measured(keras.callbacks.Callback):
    """Adds the numbers of `measure` to the logs, before others write these."""

    def __init__(self, measure: Callable[[keras.Model], dict[str, float]]):
        super().__init__()
        self.measure = measure

    def found(self) -> dict[str, float]:
        """The current numbers."""
        return self.measure(self.model)

    def on_epoch_end(self, epoch, logs=None):
        logs |= {f"val_{name}": own for name, own in self.found().items()}


class FreshStatistics(keras.callbacks.Callback):
    """Recomputes averages of the batch statistics before every evaluation.

    Moving averages lag behind the weights, and small differences from the
    batches' statistics, which training uses, add up over many steps of a
    recurrent layer. Meanwhile layers with an attribute `averaging` have it
    True.
    """

    def __init__(self, inputs: Any, batch_size: int):
        super().__init__()
        self.inputs = keras.tree.map_structure(
            lambda x: x[: max(batch_size, AVERAGED_EXAMPLES)], inputs
        )
        # A smaller last batch would have other statistics.
        count = len(keras.tree.flatten(self.inputs)[0])
        self.batch_size = batch_size
        self.number = min(count // batch_size, AVERAGED_BATCHES)

    def on_test_begin(self, logs=None):
        model = self.model
        told = [layer for layer in model.layers if hasattr(layer, "averaging")]
        # XLA does not pay off for so few batches.
        compiled, model.jit_compile = model.jit_compile, False
        for layer in told:
            layer.averaging = True
        keras_ln.reestimate_statistics(
            model, self.inputs, self.batch_size, self.number
        )
        for layer in told:
            layer.averaging = False
        model.jit_compile = compiled


class StopOnCtrlC(keras.callbacks.Callback):
    """Ends the training if Keras or Python swallowed a Ctrl-C."""

    def on_epoch_begin(self, epoch, logs=None):
        ending.check_interrupted()


class StopOnNonFinite(keras.callbacks.TerminateOnNaN):
    """`TerminateOnNaN` that names the update and spares the checkpoints.

    Put it before the callbacks that save.
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
        # The last update may have spoilt weights after the last training loss.
        self._check("val_loss", logs, self.updates, self.updates)

    def _check(self, key, logs, first, last):
        loss = float((logs or {}).get(key, 0.0))
        if math.isfinite(loss):
            return
        start = self._epoch * self.updates
        where = f"update {start + last}"
        if first < last:
            where = f"updates {start + first} to {start + last}"
        kept = "the last good model is kept, and " * (self._epoch > 0)
        help_ = f"{kept}a smaller --learning-rate may help"
        raise NonFiniteLossError(f"{key} is {loss} at {where}; {help_}")
