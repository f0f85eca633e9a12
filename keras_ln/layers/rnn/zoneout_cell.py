"""Zoneout of a recurrent cell: its probabilities, and its choices.

Letters: B batch, T time, U units.
"""

from typing import Any

import keras

from keras_ln._keras import DropoutRNNCell
from keras_ln.ops.cells.types import Cell
from keras_ln.ops.recurrence.zoneout import NAMES, SeedAt, draw, kept_of, zoned

# The largest count k for which k + 1 is exact.
COUNTS_TO = {"float16": 2048, "bfloat16": 256, "float32": 2**24}


class ZoneoutRNNCell(DropoutRNNCell):
    """What a cell with the attributes `zoneout` and `cell_zoneout` needs.

    The layer draws the choices of all steps at once. A cell by itself, as in
    `keras.layers.RNN`, draws those of its step, from a seed of the sequence
    and from the number of the step, which is a state of its own.
    """

    maths: Cell
    seed_generator: keras.random.SeedGenerator
    # False for the expectation in training too.
    zoneout_chooses = True
    # Of the sequence, for the steps of a cell by itself.
    _zoneout_seed: Any = None

    def zoneout_shares(self) -> dict[str, float]:
        """The probabilities of zoneout by name, of h and where it is of c."""
        return {
            name: getattr(self, name) for name in NAMES[: self.maths.states]
        }

    def zoneouts(
        self, shape: tuple[Any, ...], training: bool | None
    ) -> dict[str, Any]:
        """What stays of the states, by name, for an op.

        Args:
            shape: (B, T, U).
            training: whether to draw choices; else they are shares.
        """
        shares = self.zoneout_shares()
        chooses = training and self.zoneout_chooses
        if chooses and any(shares.values()):
            return draw(shares, shape, self.seed_generator)
        return shares

    def get_recurrent_dropout_mask(self, step_input: Any) -> Any:
        """That of the sequence (B, U), or None.

        `keras.layers.RNN` asks for it before its loop, inside of which no
        seed can be drawn on JAX: so that of zoneout is drawn here too.
        """
        if self._zoneout_seed is None and any(self.zoneout_shares().values()):
            self._zoneout_seed = self.seed_generator.next()
        return super().get_recurrent_dropout_mask(step_input)

    def reset_recurrent_dropout_mask(self) -> None:
        """Makes the next sequence draw anew."""
        super().reset_recurrent_dropout_mask()
        self._zoneout_seed = None

    def zoned(
        self, new: Any, old: Any, counter: Any, training: bool | None
    ) -> tuple[Any, ...]:
        """The states (B, U) after a step by itself, with zoneout.

        Args:
            new: states, as the step makes them.
            old: those before it.
            counter: steps that each row has done (B, 1), None without zoneout.
            training: whether to draw choices.
        """
        shares = self.zoneout_shares()
        if not any(shares.values()):
            return tuple(new)
        choices = None
        if training:
            self.get_recurrent_dropout_mask(old[0])
            seed = SeedAt(self._zoneout_seed, counter)
            drawn = draw(shares, keras.ops.shape(new[0]), seed)
            choices = tuple(
                drawn[name] if share else None for name, share in shares.items()
            )
        return zoned(new, old, kept_of(tuple(shares.values()), choices))


def counted(counter: Any) -> Any:
    """The counter plus one, or 0 where the dtype cannot represent that.

    Keras' loop turns float32 into the compute dtype.
    """
    dtype = keras.backend.standardize_dtype(counter.dtype)
    ends = counter >= COUNTS_TO.get(dtype, COUNTS_TO["float32"])
    return keras.ops.where(ends, keras.ops.zeros_like(counter), counter + 1)
