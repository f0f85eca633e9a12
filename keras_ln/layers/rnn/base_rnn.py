"""What the sequence layers share: the loop over time.

Letters: B batch, T time, D input features, U units.
"""

import dataclasses
from typing import Any, NamedTuple

import keras

from keras_ln._keras import mask_of, never_cast
from keras_ln.layers.rnn.rnn_of_cell import RNNOfCell
from keras_ln.layers.types import Shape
from keras_ln.ops import arguments, recurrence
from keras_ln.ops.dtypes import cast
from keras_ln.ops.recurrence.problem import Overridden, Problem
from keras_ln.ops.symbolic import leaves


class _MaskAndOptions(NamedTuple):
    """What `keras.layers.RNN.call` hands to `inner_loop` as the mask."""

    mask: Any  # (B, T), or None
    options: dict[str, Any]  # for the op


# No tuple, which Keras would look through for layers of its own to track.
@dataclasses.dataclass(eq=False)
class _LastProblem:
    """The problem that a layer had last, and what it was made of."""

    problem: Any = None
    ingredients: Any = None


class BaseRNN(RNNOfCell):
    """A cell of `cell_class` over time, by one call of an op."""

    def __init__(self, named: dict[str, Any], **kwargs: Any) -> None:
        """Makes the cell; see there."""
        super().__init__(named, **kwargs)
        self._last = _LastProblem()
        # What is impossible fails here, not in a call.
        recurrence.choose(self.as_problem())

    def get_initial_state(self, batch_size: Any) -> list[Any]:
        """Zeros, one tensor (B, U) per state."""
        states = super().get_initial_state(batch_size)
        return states[: self.cell.equations.states]

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
        if self.stateful:
            for state in leaves(self.states):
                never_cast(state)
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
        """Runs the cell over `sequences` (B, T, D); see the class.

        One row (1, U) of a state is used for the whole batch.
        """
        if reset is None and reset_state is None:
            return self.run_call(sequences, initial_state, mask, training)
        if isinstance(reset, list | tuple):  # as masks may be
            reset = keras.ops.array(reset)
        # Keras drops it when a call has several tensors.
        mask = mask_of(sequences) if mask is None else mask
        return self.run_call(
            sequences,
            initial_state,
            mask,
            training,
            reset=reset,
            reset_states=reset_state,
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
        name, sizes, unroll = type(self).__name__, self.state_size, self.unroll
        resets = (options.get("reset"), options.get("reset_states"))
        whole = recurrence.check_call(
            name, sizes, unroll, sequences, initial_state, *resets
        )
        if initial_state is None and not self.stateful:
            initial_state = options.get("reset_states")
        if whole:
            sequences = keras.ops.cast(sequences, self.compute_dtype)
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
        mask: Any = None,
        training: bool | None = False,
        reset: Any = None,
        reset_state: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Shapes and dtypes of the outputs for symbolic inputs."""
        recurrence.check_call(
            type(self).__name__,
            self.state_size,
            self.unroll,
            sequences,
            initial_state,
            reset,
            reset_state,
        )
        return super().compute_output_spec(
            sequences, initial_state, mask, training, **kwargs
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
        cell, problem = self.cell, self.as_problem()
        mask, more = mask
        options |= more
        states = self._states(initial_state, sequences)
        if self.stateful:
            # On torch the new states would overwrite these before the backward
            # pass has used them.
            states = tuple(keras.ops.copy(state) for state in states)
        masks = (None if mask is None else _time_mask(mask), None, None)
        if training:
            h = cast(states[0], cell.compute_dtype)
            x = sequences[:, 0, :]
            masks = (masks[0], *cell.dropout_masks(x, h, training))
        if any(mask is not None for mask in masks):
            masks = recurrence.check_masks(sequences, cell.units, *masks)
        if problem.plan.zoneout:
            problem, options["choices"] = self._zoneout(sequences, training)
        if options.get("reset") is not None:
            options |= self._resets(sequences, **options)
        return self.run(
            problem._replace(training=bool(training)),
            sequences,
            states,
            cell.tensors(),
            mask=masks[0],
            dropout_masks=masks[1:],
            **options,
        )[:3]

    def _zoneout(self, sequences, training):
        """The problem, with rates for what has no choices, and the choices."""
        cell, problem = self.cell, self.as_problem()
        shape = (*keras.ops.shape(sequences)[:2], cell.units)
        rates, choices = recurrence.split_zoneout(
            cell.equations.states,
            problem.owner,
            (*sequences.shape[:2], cell.units),
            **cell.zoneouts(shape, training),
        )
        plan = problem.plan._replace(zoneout=rates)
        return problem._replace(plan=plan), choices

    def _resets(self, sequences, reset, reset_states=None, **options):
        """The arguments of `call`, converted."""
        if reset_states is not None:
            reset_states = self._states(reset_states, sequences)
        reset = arguments.check_time_mask(reset, sequences.shape, "reset")
        return {"reset": reset, "reset_states": reset_states}

    def _states(self, given: Any, sequences: Any) -> tuple[Any, ...]:
        """States (B, U) for an op: sums in at least float32.

        Without a count of steps, which is no state of the op.
        """
        cell, states = self.cell, []
        wide = self.as_problem().plan.settings.dtype
        for k, state in enumerate(leaves(given)[: cell.equations.states]):
            if state.shape[0] == 1 and sequences.shape[0] != 1:
                rows = keras.ops.shape(sequences)[0]
                state = keras.ops.broadcast_to(state, (rows, state.shape[1]))
            is_sum = k in cell.accumulators
            states.append(cast(state, wide if is_sum else cell.compute_dtype))
        return tuple(states)

    def run(
        self,
        problem: Problem,
        sequences: Any,
        states: Any,
        weights: Any,
        **options: Any,
    ) -> tuple[Any, ...]:
        """The op: last output, outputs, states, statistics."""
        return recurrence.run_problem(
            problem,
            sequences,
            states,
            weights,
            zero_output_for_mask=self.zero_output_for_mask,
            **options,
        )

    def as_problem(self) -> Problem:
        """What the layer asks of an op, without tensors."""
        cell = self.cell
        ingredients = (
            cell,
            self.compute_dtype,
            self.go_backwards,
            self.return_sequences,
            self.unroll,
            self._use_fused,
            *[getattr(cell, name) for name in cell.op_arguments],
        )
        if ingredients != self._last.ingredients:
            self._last = _LastProblem(self._new_problem(), ingredients)
        return self._last.problem

    def _new_problem(self) -> Problem:
        cell, overridden = self.cell, None
        if cell.overridden_methods:
            overridden = Overridden(cell, cell.overridden_methods)
        return recurrence.problem_of(
            cell.equations,
            self.compute_dtype,
            owner=type(self).__name__,
            use_fused=self.use_fused,
            unroll=self.unroll,
            overridden=overridden,
            go_backwards=self.go_backwards,
            return_all_outputs=self.return_sequences,
            zoneout=tuple(cell.zoneout_rates().values()),
            **cell.settings(),
        )


def _time_mask(mask: Any) -> Any:
    """The mask (B, T), or None; Keras may nest it in a list."""
    first = keras.tree.flatten(mask)[0]
    if first is None:
        return None
    mask = first if hasattr(first, "shape") else keras.ops.array(mask)
    if len(mask.shape) == 3 and mask.shape[-1] == 1:
        mask = mask[..., 0]
    return mask
