"""The initial biases of cells that are to remember for many steps."""

from typing import Any

import keras

from keras_ln.ops.dtypes import at_least_float32

CELLS = ("lstm", "gru", "lngru")
_SHAPES = {
    "lstm": "(4 * units,); the bias of an LSTM needs unit_forget_bias=False, "
    "with which alone it is asked for as a whole",
    "gru": "(3 * units,) or (2, 3 * units)",
    "lngru": "(3 * units,)",
}


@keras.saving.register_keras_serializable(package="keras_ln")
class LogUniformForgetBias(keras.initializers.Initializer):
    """Biases with which the units of a cell remember for different times.

    A gate that keeps the share sigmoid(b) of a state at every step forgets it
    in about 1 + exp(b) steps. With `b = log(u)`, u uniform in [1, steps - 1],
    these times are spread over those that the data ask for:

    | `cell`    | shape            | layout     | initial value            |
    |-----------|------------------|------------|--------------------------|
    | `"lstm"`  | (4U,)            | i, f, c, o | -log(u), log(u), 0, 0    |
    | `"gru"`   | (3U,) or (2, 3U) | z, r, h    | log(u), 0, 0             |
    | `"lngru"` | (3U,)            | z, r, h    | -log(u), 0, 0            |

    A z of 1 keeps the state in `keras.layers.GRU` and takes the candidate in
    `LNGRU`, hence the sign. Of the two rows that `keras.layers.GRU` has with
    `reset_after=True` the first, the bias of the inputs, has the values, and
    the other is zero.

    Layers with the gates i, f, c, o, such as `LNLSTM` and `keras.layers.LSTM`,
    need `unit_forget_bias=False`, `LNGRU` needs `use_bias=True`:

        LNLSTM(
            64,
            bias_initializer=LogUniformForgetBias(64, steps=200),
            unit_forget_bias=False,
        )

    Args:
        units: the units of the cell.
        steps: how long is to be remembered: the length of the sequences, if
            nothing else is known. At least 2.
        cell: whose biases they are, "lstm", "gru" (of `keras.layers.GRU`) or
            "lngru" (of `LNGRU`).
        seed: as of `keras.initializers.RandomUniform`. With an integer every
            call gives the same values.

    Raises:
        ValueError: for arguments that are not of that kind and, when it is
            called, for a shape that is not in the table.

    Source: Tallec and Ollivier, "Can recurrent neural networks warp time?"
    (2018), section 2.

    >>> import keras
    >>> bias = LogUniformForgetBias(2, steps=100, seed=1)((8,))
    >>> i, f, c, o = keras.ops.convert_to_numpy(bias).reshape(4, 2)
    >>> bool((i == -f).all() and (0 <= f).all() and (f <= 4.6).all())
    True
    """

    def __init__(
        self,
        units: int,
        steps: int,
        cell: str = "lstm",
        seed: Any = None,
    ) -> None:
        """Takes the arguments that the class lists."""
        for name, value, least in (("units", units, 1), ("steps", steps, 2)):
            if type(value) is not int or value < least:
                raise ValueError(
                    f"Argument `{name}` must be an integer of at least "
                    f"{least}. Received: {name}={value!r}"
                )
        if cell not in CELLS:
            raise ValueError(
                f"Argument `cell` must be any of {CELLS}. Received: "
                f"cell={cell!r}"
            )
        self.units = units
        self.steps = steps
        self.cell = cell
        self._times = keras.initializers.RandomUniform(1.0, steps - 1.0, seed)

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        """The biases."""
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
