"""What the recurrent cells share: steps, dropout, states.

Letters: B batch, D input features, U units, n gates.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_ln.layers.constructor_arguments import of_keras
from keras_ln.layers.rnn.cell_weights import CellWeights
from keras_ln.layers.rnn.zoneout_cell import ZoneoutRNNCell, fixed
from keras_ln.ops import arguments, recurrence
from keras_ln.ops.cells.types import Settings
from keras_ln.ops.recurrence.forward import project
from keras_ln.ops.recurrence.zoneout import NAMES, counted


class BaseCell(CellWeights, ZoneoutRNNCell):
    """A recurrent cell, by the equations of an op.

    A class supplies `equations`; its layer runs `project` for all steps at
    once, then `step` over time.
    """

    # States to carry in at least float32, by index: the sums.
    accumulators: tuple[int, ...] = ()
    # How many of the last states are step counters, of any dtype. With zoneout
    # there is one: a single step derives its random choices from the count.
    counters = 0
    # The methods that a subclass overrides.
    overridden_methods: tuple[str, ...] = ()

    activation: Callable[[Any], Any]
    epsilon: float
    dropout: float
    recurrent_dropout: float

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Notes which methods a subclass overrides."""
        super().__init_subclass__(**kwargs)

        def place(name: str) -> int:
            return next(k for k, c in enumerate(cls.__mro__) if name in vars(c))

        if hasattr(cls, "equations"):
            cls.overridden_methods = tuple(
                name
                for name in ("call", "project", "step")
                if place(name) < place("equations")
            )

    def __init__(self, named: dict[str, Any], **kwargs: Any) -> None:
        """Keeps the named arguments, and hands `kwargs` to Keras."""
        super().__init__(**of_keras(kwargs))
        if "epsilon" in named:
            arguments.check_epsilon(named["epsilon"], allow_zero=False)
        self.keep_arguments(named)
        self.seed_generator = keras.random.SeedGenerator(seed=named["seed"])
        for name in self.weight_names:
            setattr(self, name, None)
        # The arguments that the equations and zoneout take.
        names = (*Settings._fields, *NAMES)
        self.op_arguments = tuple(name for name in names if name in named)
        if any(self.zoneout_rates().values()):
            self.counters = 1
        sizes = [self.units] * self.equations.states + [1] * self.counters
        self.state_size: Any = sizes if len(sizes) > 1 else self.units
        self.output_size = self.units
        self.reset_dropout_mask()
        self.reset_recurrent_dropout_mask()

    def settings(self) -> dict[str, Any]:
        """The arguments of the cell that are settings of its equations."""
        names = set(self.op_arguments) - {*NAMES}
        return {name: getattr(self, name) for name in names}

    def project(self, inputs: Any, weights: dict[str, Any]) -> Any:
        """The products (..., nU) of inputs (..., D) with the kernel."""
        return project(inputs, weights)

    def step(
        self,
        projected: Any,
        states: tuple[Any, ...],
        weights: dict[str, Any],
        recurrent_mask: Any,
    ) -> tuple[Any, ...]:
        """The states after one step; projected is (B, nU)."""
        return recurrence.step(
            self.equations,
            projected,
            states,
            weights,
            recurrent_mask=recurrent_mask,
            **self.settings(),
        )

    def dropout_masks(
        self, inputs: Any, h: Any, training: bool | None
    ) -> tuple[Any, Any]:
        """The sequence's masks of the inputs (B, D) and of h (B, U).

        They are scaled by 1 / (1 - rate), constant over time and shared by
        the gates (Gal and Ghahramani 2016); None where nothing is dropped.
        """
        if not training:
            return None, None
        input_mask = self.get_dropout_mask(inputs)
        return input_mask, self.get_recurrent_dropout_mask(h)

    def call(
        self, inputs: Any, states: Any, training: bool | None = False
    ) -> tuple[Any, Any]:
        """One step: inputs (B, D) and states (B, U) -> (h, states)."""
        inputs = self.check_call(inputs, states)
        nested = keras.tree.is_nested(states)
        states = tuple(states) if nested else (states,)
        states, counters = (
            states[: self.equations.states],
            states[self.equations.states :],
        )
        input_mask, recurrent_mask = self.dropout_masks(
            inputs, states[0], training
        )
        if input_mask is not None:
            inputs = inputs * input_mask
        weights = self.tensors()
        new = self.step(
            self.project(inputs, weights), states, weights, recurrent_mask
        )
        if counters:
            new = self.apply_zoneout(new, states, counters[0], training)
            new = (*new, counted(counters[0]))
        return new[0], list(new) if nested else new[0]

    def check_call(self, inputs: Any, states: Any) -> Any:
        """The inputs; `ValueError` unless they and the states fit a step."""
        inputs = self.as_floating("inputs", inputs)
        arguments.check_shape(
            "inputs",
            inputs.shape,
            (None, self.kernel.shape[0]),
            "batch, features",
        )
        sizes = keras.tree.flatten(self.state_size)
        named = [("states", states)]
        if isinstance(states, list | tuple):
            named = arguments.places("states", states)
        if len(named) != len(sizes) or not all(
            hasattr(state, "shape") for _, state in named
        ):
            kinds = [type(state).__name__ for _, state in named]
            raise ValueError(
                f"Argument `states` of {type(self).__name__} must be "
                f"{len(sizes)} tensor(s), as get_initial_state gives them. "
                f"Received: {len(named)}"
                + (f" ({', '.join(kinds)})." if kinds else ".")
            )
        for k, (name, state) in enumerate(named):
            if k < len(sizes) - self.counters:
                # An integer state would truncate what each step adds.
                arguments.check_floating(name, state.dtype)
            # One row is used for the whole batch, as in Keras' cells.
            rows = 1 if tuple(state.shape)[:1] == (1,) else inputs.shape[0]
            arguments.check_shape(
                name, state.shape, (rows, sizes[k]), "batch, size"
            )
        return inputs

    def get_initial_state(
        self, batch_size: Any = None, **of_keras_2: Any
    ) -> list[Any]:
        """Zeros, one tensor (B, U) per state; counters (B, 1) in float32."""
        if of_keras_2:
            raise TypeError(
                f"{type(self).__name__} is a cell for keras.layers.RNN of "
                "Keras 3. Received: the arguments "
                f"{', '.join(sorted(of_keras_2))}, which tf_keras.layers.RNN "
                "(Keras 2) hands to its cells. Build the model with `keras`."
            )
        dtypes = [self.compute_dtype] * self.equations.states
        dtypes += ["float32"] * self.counters
        sizes = keras.tree.flatten(self.state_size)
        return [
            keras.ops.zeros((batch_size, size), dtype=dtype)
            for size, dtype in zip(sizes, dtypes, strict=True)
        ]


class BaseLSTMCell(BaseCell):
    """A cell with the gates i, f, c, o and the states h and c."""

    accumulators = (1,)

    unit_forget_bias: bool

    cell_zoneout = fixed("cell_zoneout")

    def initial_value(self, name: str) -> Any:
        """The initializer of a vector: ones for f with `unit_forget_bias`."""
        initializer = super().initial_value(name)
        if name != "bias" or not self.unit_forget_bias:
            return initializer

        def with_open_forget_gate(shape, dtype=None, **kwargs):
            units = self.units
            return keras.ops.concatenate(
                [
                    initializer((units,), dtype=dtype, **kwargs),
                    keras.ops.ones((units,), dtype=dtype),
                    initializer((2 * units,), dtype=dtype, **kwargs),
                ]
            )

        return with_open_forget_gate
