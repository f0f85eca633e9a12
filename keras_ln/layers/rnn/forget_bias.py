"""Initial biases for cells that have to remember for many steps."""

import numbers
from typing import Any

import keras

from keras_ln.engine import arguments
from keras_ln.engine.dtypes import at_least_float32

CELLS = ("lstm", "gru", "lngru")
_SHAPES = {
    "lstm": "(4 * units,); an LSTM needs unit_forget_bias=False, or it "
    "initializes the gates' biases separately",
    "gru": "(3 * units,) or (2, 3 * units)",
    "lngru": "(3 * units,)",
}


@keras.saving.register_keras_serializable(package="keras_ln")
class LogUniformForgetBias(keras.initializers.Initializer):
    """Biases with which the units of a cell remember for different times.

    A gate that keeps the share sigmoid(b) of a state at every step forgets the
    state in about 1 + exp(b) steps. With `b = log(u)`, u uniform in
    [1, steps - 1], these times spread over the range that the data need:

    | `cell`    | shape            | layout     | initial value            |
    |-----------|------------------|------------|--------------------------|
    | `"lstm"`  | (4U,)            | i, f, c, o | -log(u), log(u), 0, 0    |
    | `"gru"`   | (3U,) or (2, 3U) | z, r, h    | log(u), 0, 0             |
    | `"lngru"` | (3U,)            | z, r, h    | -log(u), 0, 0            |

    The signs differ because a z of 1 keeps the state in `keras.layers.GRU` but
    takes the candidate in `LNGRU`. With `reset_after=True` a `keras.layers.GRU`
    has two rows of biases: the first, for the inputs, gets the values, and the
    second is zero.

    Layers with the gates i, f, c, o, such as `LNLSTM` and `keras.layers.LSTM`,
    need `unit_forget_bias=False`; `LNGRU` needs `use_bias=True`:

        LNLSTM(
            64,
            bias_initializer=LogUniformForgetBias(64, steps=200),
            unit_forget_bias=False,
        )

    Args:
        units: the units of the cell.
        steps: the number of steps to remember, at least 2. If in doubt, use
            the length of the sequences.
        cell: the kind of cell: "lstm", "gru" (for `keras.layers.GRU`) or
            "lngru" (for `LNGRU`).
        seed: as in `keras.initializers.RandomUniform`. With an integer every
            call gives the same values.

    Raises:
        ValueError: if an argument is wrong; when called, if the shape is not
            in the table.

    Source: Tallec and Ollivier, "Can recurrent neural networks warp time?"
    (2018), section 2.

    >>> import keras
    >>> bias = LogUniformForgetBias(2, steps=100, seed=1)((8,))
    >>> i, f, c, o = keras.ops.convert_to_numpy(bias).reshape(4, 2)
    >>> bool((i == -f).all() and (0 <= f).all() and (f <= 4.6).all())
    True
    """

    def __init__(
        self, units: int, steps: int, cell: str = "lstm", seed: Any = None
    ) -> None:
        for name, value, least in (("units", units, 1), ("steps", steps, 2)):
            is_integer = isinstance(value, numbers.Integral)
            if not is_integer or isinstance(value, bool) or value < least:
                raise arguments.wrong(
                    name, f"an integer of at least {least}", value
                )
        if cell not in CELLS:
            raise arguments.wrong("cell", f"any of {CELLS}", cell)
        self.units = int(units)
        self.steps = int(steps)
        self.cell = cell
        longest = self.steps - 1.0
        self._times = keras.initializers.RandomUniform(1.0, longest, seed)

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        """Biases of this shape and dtype."""
        shape, units = tuple(shape), self.units
        fitting: dict[str, list[tuple[int, ...]]] = {
            "lstm": [(4 * units,)],
            "gru": [(3 * units,), (2, 3 * units)],
            "lngru": [(3 * units,)],
        }
        if shape not in fitting[self.cell]:
            raise ValueError(
                f"LogUniformForgetBias(units={units}, cell={self.cell!r}) "
                f"initializes biases of shape {_SHAPES[self.cell]}. Received: "
                f"shape={shape}"
            )
        dtype = keras.backend.standardize_dtype(dtype)
        wide = at_least_float32(dtype)
        keep = keras.ops.log(self._times((units,), wide))
        zeros = keras.ops.zeros((units,), wide)
        gates = {
            "lstm": [-keep, keep, zeros, zeros],
            "gru": [keep, zeros, zeros],
            "lngru": [-keep, zeros, zeros],
        }[self.cell]
        bias = keras.ops.concatenate(gates)
        if len(shape) > 1:
            bias = keras.ops.stack([bias, keras.ops.zeros_like(bias)])
        return keras.ops.cast(bias, dtype)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {
            "units": self.units,
            "steps": self.steps,
            "cell": self.cell,
            "seed": self._times.get_config()["seed"],
        }
