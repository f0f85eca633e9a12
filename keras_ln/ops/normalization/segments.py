"""Sites of gates with statistics of parts of a row.

Letters: B batch, F features of the normalised vector, U units.
"""

import itertools
from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.cells.types import Settings
from keras_ln.ops.normalization.sites import LayerNorms

# Over what a row's statistics are taken at the sites of gates: as in the paper,
# over each gate by itself, or over all of them.
GROUPS = ("paper", "gate", "all")


class SegmentNorms(LayerNorms):
    """Sites where segments of the features are normalised one by one.

    Vectors of another size than all segments together are normalised whole.
    """

    def __init__(
        self,
        segments: tuple[int, ...],
        weights: dict[str, Any],
        settings: Settings,
    ):
        """The sites of one step; the segments are in multiples of U."""
        super().__init__(weights, settings)
        units = weights["recurrent_kernel"].shape[0]
        self.ends = [units * k for k in itertools.accumulate(segments)]
        self.places = list(zip([0, *self.ends], self.ends, strict=False))

    def average(self, z: Any) -> Any:
        """Means (B, n) of the n segments of the rows."""
        average, size = super().average, z.shape[-1]
        if size != self.ends[-1] or len(self.ends) == 1:
            return average(z)
        if backend.on_cpu():
            means = [average(z[..., start:end]) for start, end in self.places]
        else:
            # Whole rows, which XLA fuses with the operations on them.
            here = keras.ops.arange(size)
            means = [
                average(backend.where((here >= start) & (here < end), z, 0.0))
                / ((end - start) / size)
                for start, end in self.places
            ]
        return keras.ops.concatenate(means, axis=-1)

    def spread(self, average: Any) -> Any:
        """The averages (B, F), each in the place of its segment."""
        if average.shape[-1] == 1:
            return average
        here = keras.ops.arange(self.ends[-1])
        spread = average[..., -1:]
        for k in reversed(range(len(self.ends) - 1)):
            spread = backend.where(
                here < self.ends[k], average[..., k : k + 1], spread
            )
        return spread


def check_groups(groups: Any) -> str:
    """The groups of a cell; `ValueError` unless there are such."""
    if groups not in GROUPS:
        raise ValueError(
            f"Argument `groups` must be one of {', '.join(map(repr, GROUPS))}. "
            f"Received: groups={groups!r}"
        )
    return groups
