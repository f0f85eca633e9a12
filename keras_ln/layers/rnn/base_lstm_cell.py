"""The base of the LSTM cells."""

from typing import Any

import keras

from keras_ln.engine import arguments
from keras_ln.layers.rnn.base_cell import BaseCell


class BaseLSTMCell(BaseCell):
    """A cell with the gates i, f, c, o and the states h and c."""

    accumulators = ("c",)

    unit_forget_bias: bool

    def __init__(self, named: dict[str, Any], **kwargs: Any) -> None:
        """As the base; `ValueError` unless P < U."""
        super().__init__(named, **kwargs)
        if (self.projection or 0) >= self.units:
            raise arguments.wrong(
                "projection",
                f"less than the number of units, {self.units}",
                self.projection,
            )

    def initial_value(self, name: str) -> Any:
        """The initializer of a vector: ones for f with `unit_forget_bias`."""
        initializer = super().initial_value(name)
        if name != "bias" or not self.unit_forget_bias:
            return initializer

        def with_open_forget_gate(shape, dtype=None, **kwargs):
            i, others = (
                initializer((count * self.units,), dtype=dtype, **kwargs)
                for count in (1, 2)
            )
            return keras.ops.concatenate([i, keras.ops.ones_like(i), others])

        return with_open_forget_gate
