"""Zoneout of a recurrent cell: its rates, and its choices.

Letters: B batch, T time, U units.
"""

from typing import Any

import keras

from keras_ln._keras import DropoutRNNCell
from keras_ln.ops.cells.types import Cell
from keras_ln.ops.recurrence.zoneout import NAMES, SeedAt, apply_zoneout, draw


def fixed(name: str) -> Any:
    """A rate that is set once, since it decides on the states."""

    def set_once(self, rate):
        if hasattr(self, f"_{name}"):
            raise AttributeError(
                f"`{name}` cannot be changed: with zoneout a cell has one more "
                f"state. Make a new cell. Received: {name}={rate!r}"
            )
        setattr(self, f"_{name}", rate)

    return property(
        lambda self: getattr(self, f"_{name}"),
        set_once,
        doc=f"The argument `{name}`.",
    )


class ZoneoutRNNCell(DropoutRNNCell):
    """What a cell with the attributes `zoneout` and `cell_zoneout` needs.

    The layer draws the choices of all steps at once. A cell by itself, as in
    `keras.layers.RNN`, draws the choices of its step, from a seed of the
    sequence and from the number of the step, which is a further state.

    That seed is the state of the generator. It is read in the loop over time,
    where JAX can assign none, and moves on when the sequence is over.
    """

    equations: Cell
    seed_generator: keras.random.SeedGenerator
    # False for the expectation in training too.
    zoneout_chooses = True
    # Whether a step by itself has used the seed that there is.
    has_chosen = False

    zoneout = fixed("zoneout")

    def zoneout_rates(self) -> dict[str, float]:
        """The rates of h, and of c where there is one, by name."""
        names = NAMES[: self.equations.states]
        return {name: getattr(self, name) for name in names}

    def zoneouts(
        self, shape: tuple[Any, ...], training: bool | None
    ) -> dict[str, Any]:
        """What stays of the states, by name: choices (B, T, U), or rates."""
        rates = self.zoneout_rates()
        chooses = training and self.zoneout_chooses
        if chooses and any(rates.values()):
            return draw(rates, shape, self.seed_generator)
        return rates

    def apply_zoneout(
        self, new: Any, old: Any, counter: Any, training: bool | None
    ) -> tuple[Any, ...]:
        """The states (B, U) after a step by itself, with zoneout.

        The counter (B, 1) says how many steps each row has done.
        """
        rates = self.zoneout_rates()
        if not any(rates.values()):
            return tuple(new)
        choices = None
        if training:
            self.has_chosen = True
            seed = SeedAt(self.seed_generator.state.value, counter)
            drawn = draw(rates, keras.ops.shape(new[0]), seed)
            choices = [drawn[n] if rate else None for n, rate in rates.items()]
        return apply_zoneout(new, old, tuple(rates.values()), choices)

    def reset_recurrent_dropout_mask(self) -> None:
        """Makes the next sequence draw anew, if this one has drawn.

        `keras.layers.RNN` calls it after its loop, at inference too.
        """
        super().reset_recurrent_dropout_mask()
        if self.has_chosen:
            self.seed_generator.next()
            self.has_chosen = False

    def forget_dropout_masks(self) -> None:
        """Makes the next sequence draw masks and choices of its own.

        A layer does that by itself. A loop of your own over the steps calls
        it once per sequence, in training.
        """
        # Also where a function is compiled whose steps come after this.
        self.has_chosen = any(self.zoneout_rates().values())
        self.reset_dropout_mask()
        self.reset_recurrent_dropout_mask()
