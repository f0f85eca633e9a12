"""What the sequence layers share: the loop over time, and its arguments.

Letters: B batch, T time, D input features, U units.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import keras

from keras_ln._keras import mask_of
from keras_ln.layers.base_layer import BaseLayer, is_whole
from keras_ln.layers.own_arguments import argument_names, of_keras
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.call_arguments import (
    check_call,
    check_resets,
    for_every_row,
    time_mask,
)
from keras_ln.layers.types import Shape, Switch
from keras_ln.ops import arguments, recurrence
from keras_ln.ops.recurrence.problem import Problem

if TYPE_CHECKING:  # In typing since Python 3.11.
    from typing_extensions import Self

# Arguments that `keras.layers.RNN` takes; the cell takes the others.
_OF_LAYER = (
    "activity_regularizer",
    "return_sequences",
    "return_state",
    "go_backwards",
    "stateful",
    "unroll",
)


class _MaskAndOptions(NamedTuple):
    """What `keras.layers.RNN.call` hands to `inner_loop` as the mask."""

    mask: Any  # (B, T), or None
    options: dict[str, Any]  # for the op


class BaseRNN(BaseLayer, keras.layers.RNN):
    """A cell of `cell_class` over time, by one call of an op."""

    cell_class: type[BaseCell]
    # Fixed because it is part of the weights' paths, which must be the same in
    # equal models.
    cell_name: str
    state_size: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Shows the arguments of its cell in the layer too."""
        super().__init_subclass__(**kwargs)
        for name in argument_names(cls.cell_class):
            if name != "kwargs" and not hasattr(cls, name):
                of_cell = operator.attrgetter(f"cell.{name}")
                shown = property(of_cell, doc=f"The cell's `{name}`.")
                setattr(cls, name, shown)

    def __init__(self, own: dict[str, Any], **kwargs: Any) -> None:
        """Makes the cell.

        Args:
            own: the named arguments of the layer's `__init__`: those of the
                cell, of `keras.layers.RNN`, and `use_fused`, `use_cudnn`.
            **kwargs: further arguments of `keras.layers.RNN`.
        """
        kwargs = of_keras(kwargs)
        own = dict(own)
        names = tuple(own)
        switches = {
            name: arguments.check_switch(name, own.pop(name))
            for name in ("use_fused", "use_cudnn")
            if name in own
        }
        of_layer = {name: own.pop(name) for name in names if name in _OF_LAYER}
        shared = {n: kwargs[n] for n in ("dtype", "trainable") if n in kwargs}
        cell = self.cell_class(**own, **shared, name=self.cell_name)
        super().__init__(cell, **of_layer, **kwargs)
        # The loop counts the steps: a cell's counter is no state here.
        self.state_size = self.state_size[: cell.maths.states]
        self._argument_names = names
        for name, switch in switches.items():
            setattr(self, name, switch)
        self.input_spec = keras.layers.InputSpec(ndim=3, name="sequences")
        # In builds of Keras 3.16 the layers that it has no longer do.
        self.supports_masking = True
        # What is impossible fails here, not in a call.
        recurrence.choose(self.as_problem())

    @property
    def use_fused(self) -> Switch:
        """Whether to run one op per sequence: "auto", True or False."""
        return self._use_fused

    @use_fused.setter
    def use_fused(self, use_fused: Switch) -> None:
        self._use_fused = arguments.check_switch("use_fused", use_fused)

    def get_initial_state(self, batch_size: Any) -> list[Any]:
        """Zeros, one tensor (B, U) per state."""
        states = super().get_initial_state(batch_size)
        return states[: self.cell.maths.states]

    def build(
        self, sequences_shape: Shape, initial_state_shape: Any = None
    ) -> None:
        """Builds the cell for sequences (B, T, D)."""
        arguments.check_rank(
            "sequences", sequences_shape, "batch, time, features"
        )
        arguments.check_steps("sequences", sequences_shape)
        features = arguments.check_known("sequences", sequences_shape, -1)
        super().build(sequences_shape)
        self.input_spec = keras.layers.InputSpec(
            ndim=3, axes={-1: features}, name="sequences"
        )

    def call(
        self,
        sequences: Any,
        initial_state: Any = None,
        mask: Any = None,
        training: bool | None = False,
        reset: Any = None,
        reset_state: Any = None,
    ) -> Any:
        """Runs the cell over `sequences` (B, T, D).

        Args:
            sequences: tensor (B, T, D); integers are cast to floating point.
            initial_state: tensors (B, U), one per state, or None for zeros.
            mask: bool tensor (B, T), False where a row's step is left out.
            training: whether dropout is on, and zoneout chooses.
            reset: bool tensor (B, T), True where a new sequence begins; or
                None.
            reset_state: tensors (B, U), one per state, where each of them
                begins, or None for zeros.

        One row (1, U) of a state is used for the whole batch.
        """
        if reset is not None and not hasattr(reset, "shape"):
            reset = keras.ops.array(reset)  # a list, as masks may be
        self._check_resets(sequences, reset, reset_state)
        if reset is None:
            return self.run_call(sequences, initial_state, mask, training)
        if initial_state is None and not self.stateful:
            initial_state = reset_state
        # Keras drops it when a call has several tensors.
        mask = mask_of(sequences) if mask is None else mask
        options = {"reset": reset}
        if reset_state is not None:
            states = keras.tree.flatten(reset_state)
            options["reset_state"] = self._widened(states)
        return self.run_call(
            sequences, initial_state, mask, training, **options
        )

    def run_call(
        self,
        sequences: Any,
        initial_state: Any,
        mask: Any,
        training: bool | None,
        **options: Any,
    ) -> Any:
        """`call`, with further options of the op."""
        sequences = self.as_floating("sequences", sequences)
        check_call(self, sequences, initial_state)
        try:
            return super().call(
                sequences,
                initial_state=initial_state,
                mask=_MaskAndOptions(mask, options),
                training=training,
            )
        finally:
            # After an error too, or the next call would reuse the masks.
            self.cell.reset_dropout_mask()
            self.cell.reset_recurrent_dropout_mask()

    def compute_output_spec(
        self,
        sequences: Any,
        initial_state: Any = None,
        *,
        reset: Any = None,
        reset_state: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Shapes and dtypes of the outputs for symbolic inputs."""
        if not is_whole(sequences.dtype):
            arguments.check_floating("sequences", sequences.dtype)
        check_call(self, sequences, initial_state)
        self._check_resets(sequences, reset, reset_state)
        return super().compute_output_spec(
            sequences, initial_state=initial_state, **kwargs
        )

    def inner_loop(
        self,
        sequences: Any,
        initial_state: Any,
        mask: Any,
        training: bool | None = False,
        **options: Any,
    ) -> Any:
        """The states over time; `keras.layers.RNN.call` does the rest."""
        cell = self.cell
        mask, more = mask
        options |= more
        # Without a count of steps, which is no state of the op.
        states = tuple(
            for_every_row(state, sequences)
            for state in keras.tree.flatten(initial_state)[: cell.maths.states]
        )
        if self.stateful:
            # On torch the new states would overwrite these before the backward
            # pass has used them.
            states = tuple(keras.ops.copy(state) for state in states)
        input_mask, recurrent_mask = cell.dropout_masks(
            sequences[:, 0, :], states[0], training
        )
        return self.run(
            sequences,
            self._widened(states),
            cell.tensors(),
            mask=time_mask(mask),
            input_mask=input_mask,
            recurrent_mask=recurrent_mask,
            training=bool(training),
            **cell.zoneouts(
                (*keras.ops.shape(sequences)[:2], cell.units), training
            ),
            **options,
        )[:3]

    def _widened(self, states: Any) -> tuple[Any, ...]:
        """The states, those that are sums in at least float32."""
        narrow = self.cell.compute_dtype
        wide = arguments.at_least_float32(narrow)
        return tuple(
            keras.ops.cast(
                state, wide if k in self.cell.accumulators else narrow
            )
            for k, state in enumerate(states)
        )

    def run(
        self, sequences: Any, states: Any, weights: Any, **options: Any
    ) -> tuple[Any, ...]:
        """The op: last output, outputs, states, statistics."""
        return recurrence.run(
            self.cell.maths,
            sequences,
            states,
            weights,
            zero_output_for_mask=self.zero_output_for_mask,
            **{**self._asked_for(), **options},
        )

    def as_problem(self) -> Problem:
        """What the layer asks of an op, without tensors."""
        return recurrence.problem_of(
            self.cell.maths, self.compute_dtype, **self._asked_for()
        )

    def _asked_for(self):
        return {
            "go_backwards": self.go_backwards,
            "return_all_outputs": self.return_sequences,
            "unroll": self.unroll,
            "use_fused": self.use_fused,
            "own": self.cell.own(),
            "owner": type(self).__name__,
            **self.cell.settings(),
            **self.cell.zoneout_shares(),
        }

    def get_config(self) -> dict[str, Any]:
        """Every argument of the constructor."""
        config = super().get_config()
        del config["cell"]
        return config

    @classmethod
    def from_config(
        cls,
        config: dict[str, Any],
        custom_objects: dict[str, Any] | None = None,
    ) -> Self:
        """A layer from its `get_config`, or that of Keras' own layer."""
        with keras.saving.custom_object_scope(custom_objects or {}):
            return cls(**config)

    def _check_resets(self, sequences, reset, reset_state):
        check_resets(self, sequences, reset, reset_state)
