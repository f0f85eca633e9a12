"""The base of the sequence layers: the loop over time.

Letters: B batch, T time, D input features, U units.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING, Any

import keras

from keras_ln import engine
from keras_ln._keras import mask_of, never_cast
from keras_ln.engine import arguments, bind
from keras_ln.engine.dtypes import at_least_float32, cast
from keras_ln.engine.spec import Overridden, RunOptions, Spec, spec_of
from keras_ln.layers.base_layer import BaseLayer
from keras_ln.layers.constructor_arguments import argument_names, of_keras
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.types import Shape, Switch
from keras_ln.ops.argument_table import ARGUMENTS, accept
from keras_ln.ops.symbolic import leaves

if TYPE_CHECKING:  # In typing since Python 3.11.
    from typing_extensions import Self


# Not a tuple, in which Keras would search for layers to track.
@dataclasses.dataclass(eq=False)
class _LastProblem:
    """The last problem of a layer, and the values that it was made from."""

    problem: Any = None
    ingredients: Any = None


class BaseRNN(BaseLayer, keras.layers.RNN):
    """A cell of `cell_class` over time, by one call of an op."""

    cell_class: type[BaseCell]
    # Fixed because it is part of the weights' paths, which must be the same in
    # equal models.
    cell_name: str
    state_size: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Makes the cell's arguments attributes of the layer too."""
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "cell_class"):
            return
        for name in argument_names(cls.cell_class):
            if name != "kwargs" and not hasattr(cls, name):
                of_cell = operator.attrgetter(f"cell.{name}")
                shown = property(of_cell, doc=f"The cell's `{name}`.")
                setattr(cls, name, shown)

    def __init__(self, named: dict[str, Any], **kwargs: Any) -> None:
        """Makes the cell from the named arguments of the layer's `__init__`.

        The table of arguments says which of them go to the cell and which to
        `keras.layers.RNN`, which also gets `kwargs`.
        """
        kwargs = of_keras(kwargs)
        parts: dict[str, Any] = {"cell": {}, "keras": {}, "layer": {}}
        for name, value in named.items():
            place = ARGUMENTS[name].place
            # The cell checks its own arguments.
            kept = value if place == "cell" else accept(name, value)
            parts[place][name] = kept
        shared = {n: kwargs[n] for n in ("dtype", "trainable") if n in kwargs}
        cell = self.cell_class(**parts["cell"], **shared, name=self.cell_name)
        for name in {"zero_output_for_mask"} & kwargs.keys():
            accept(name, kwargs[name])
        super().__init__(cell, **parts["keras"], **kwargs)
        # The loop counts the steps, so a cell's counter is no state here.
        self.state_size = self.state_size[: len(cell.sizes)]
        self._argument_names = tuple(named)
        for name, value in parts["layer"].items():
            setattr(self, name, value)
        self.input_spec = keras.layers.InputSpec(ndim=3, name="sequences")
        # Keras 3.16's own RNN layers no longer set it.
        self.supports_masking = True
        self._last = _LastProblem()
        # An impossible problem fails here, not in a call.
        engine.implementation(self)

    @property
    def use_fused(self) -> Switch:
        """Whether to run one op per sequence: "auto", True or False."""
        return self._use_fused

    @use_fused.setter
    def use_fused(self, use_fused: Switch) -> None:
        self._use_fused = accept("use_fused", use_fused)

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
        """A layer from its config, or from the config of Keras' own layer."""
        with keras.saving.custom_object_scope(custom_objects or {}):
            return cls(**config)

    def get_initial_state(self, batch_size: Any) -> list[Any]:
        """Zeros, one tensor (B, U) per state."""
        states = super().get_initial_state(batch_size)
        return states[: len(self.cell.sizes)]

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
        return self._call(
            sequences, initial_state, mask, training, reset, reset_state
        )

    def _call(
        self,
        sequences: Any,
        initial_state: Any,
        mask: Any,
        training: bool | None,
        reset: Any = None,
        reset_state: Any = None,
        **options: Any,
    ) -> Any:
        """`call`, with further options of the op."""
        cell, dtype = self.cell, self.compute_dtype
        owner = type(self).__name__
        bind.check_resets(cell.equations, owner, reset, reset_state)
        arguments.check_dense("sequences", sequences)
        if "float" not in str(sequences.dtype):
            sequences = self.as_floating("sequences", sequences)
        if reset is not None:
            options |= {"reset": reset, "reset_state": reset_state}
            if mask is None:
                mask = mask_of(sequences)  # Keras drops it for several tensors.
        sequences = keras.ops.convert_to_tensor(sequences)
        if sequences.shape[-1] is None:
            features = self.input_spec.axes[-1]
            sequences = arguments.with_features(sequences, features)
        if self.stateful:
            self._check_rows(sequences)
        if initial_state is None:
            initial_state = reset_state
            if self.stateful:
                initial_state = list(self.states)[: len(cell.sizes)]
        # None stays None, zeros for the op, unless an override may see it. A
        # projection runs fewer cases with an initial state.
        own = _has(self, "get_initial_state", _STATES_OF_LAYER)
        own = own and _has(cell, "get_initial_state", _STATES_OF_CELL)
        own = own and (cell.projection or _has(self, "inner_loop", _LOOP))
        if initial_state is None and not own:
            initial_state = self.get_initial_state(
                batch_size=keras.ops.shape(sequences)[0]
            )
        try:
            last_output, outputs, states = self.inner_loop(
                sequences, initial_state, mask, training, **options
            )
        finally:
            # After errors too. Only if needed: Flax NNX refuses new attributes.
            if cell.dropout or cell.recurrent_dropout or cell.has_chosen:
                cell.reset_dropout_mask()
                cell.reset_recurrent_dropout_mask()
        states = [cast(state, dtype) for state in states]
        if self.stateful:
            for variable, state in zip(self.states, states, strict=False):
                variable.assign(state)
        output = outputs if self.return_sequences else last_output
        output = cast(output, dtype)
        return (output, *states) if self.return_state else output

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
        arguments.check_dense("sequences", sequences)
        arguments.check_floating("sequences", sequences.dtype, or_whole=True)
        arrays = {"x": sequences}
        cell, owner = self.cell, type(self).__name__
        bind.check_resets(cell.equations, owner, reset, reset_state)
        given = {"initial_state": initial_state, "reset_state": reset_state}
        for name, states in given.items():
            if states is not None:
                arrays |= bind.states_of(
                    name, states, sequences, cell.sizes, owner, symbolic=True
                )
        if reset is not None:
            arguments.check_flags("reset", reset, sequences.shape)
        bind.check(*self.as_problem(), arrays, cell.units)
        return super().compute_output_spec(
            sequences, initial_state, mask, training, **kwargs
        )

    def _check_rows(self, sequences: Any) -> None:
        rows = leaves(self.states)[0].shape[0]
        if not arguments.may_equal(sequences.shape[0], rows):
            raise ValueError(
                "With stateful=True argument `sequences` must have as many "
                f"rows as the states that are carried, {rows}. Received: "
                f"sequences of shape {tuple(sequences.shape)}"
            )

    def inner_loop(
        self,
        sequences: Any,
        initial_state: Any,
        mask: Any,
        training: bool | None = False,
        reset: Any = None,
        reset_state: Any = None,
    ) -> Any:
        """Last output, outputs and states of the op, for a call.

        A subclass may override it, as with `keras.layers.RNN`.
        """
        spec, options = self.as_problem()
        options = options._replace(training=bool(training))
        arrays = self.arrays(
            *(options, sequences, initial_state, mask, training),
            *(reset, reset_state),
        )
        return self.results(engine.run(spec, arrays, options))

    def results(self, named: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
        """Last output, outputs and states, from the op's results."""
        states = [named[f"final_{name}"] for name in self.cell.sizes]
        return named["last_output"], named["outputs"], states

    def arrays(
        self,
        options: RunOptions,
        sequences: Any,
        initial_state: Any,
        mask: Any,
        training: bool | None,
        reset: Any = None,
        reset_state: Any = None,
    ) -> dict[str, Any]:
        """The arrays of a call that the op gets, by name."""
        cell = self.cell
        given = {"mask": time_mask(mask)}
        draw = getattr(cell.dropout_masks, "__func__", None)
        own = training and draw is not BaseCell.dropout_masks
        if own or cell.dropout or cell.recurrent_dropout:
            x = sequences[:, 0, :]
            h = keras.ops.zeros(
                (keras.ops.shape(x)[0], cell.sizes["h"]), cell.compute_dtype
            )
            # As in Keras: a cell's own step may need them at inference.
            drawn = cell.dropout_masks(x, h, True)
            if training:
                given["input_mask"], given["recurrent_mask"] = drawn
        if cell.has_zoneout:
            shape = (*keras.ops.shape(sequences)[:2], cell.units)
            given |= cell.zoneouts(shape, training)
        if self.stateful:
            # On torch the new states would overwrite these before the backward
            # pass has used them.
            initial_state = keras.tree.map_structure(self._copy, initial_state)
            if reset_state is not None:
                reset_state = keras.tree.map_structure(self._copy, reset_state)
        return bind.bind(
            cell.equations,
            cell.sizes,
            sequences,
            cell.tensors(),
            options,
            initial_state=initial_state,
            reset=reset,
            reset_state=reset_state,
            go_backwards=self.go_backwards,
            **given,
        )

    def _copy(self, state):
        copy = keras.ops.copy(arguments.dense_tensor("states", state))
        return cast(copy, self.cell.compute_dtype)

    def as_problem(self) -> tuple[Spec, RunOptions]:
        """The layer's problem for an op, without the arrays."""
        cell = self.cell
        ingredients = (
            self.compute_dtype,
            self.go_backwards,
            self.return_sequences,
            self.unroll,
            self._use_fused,
            self.zero_output_for_mask,
            cell,
            *[getattr(cell, name) for name in cell.settings_names],
        )
        if ingredients != self._last.ingredients:
            self._last = _LastProblem(self._new_problem(), ingredients)
        return self._last.problem

    def _new_problem(self) -> tuple[Spec, RunOptions]:
        cell, overridden = self.cell, None
        if cell.overridden_methods:
            overridden = Overridden(cell, cell.overridden_methods)
        dtype = cell.compute_dtype
        sums = at_least_float32(dtype)
        spec = spec_of(
            cell.equations,
            dtype,
            go_backwards=bool(self.go_backwards),
            return_all_outputs=bool(self.return_sequences),
            **{f"{n}_share": r for n, r in cell.zoneout_rates().items()},
            **cell.settings(),
        )
        return spec, RunOptions(
            type(self).__name__,
            self.use_fused,
            self.unroll,
            zero_output_for_mask=bool(self.zero_output_for_mask),
            dtypes=tuple(
                (
                    f"{prefix}_{name}",
                    sums if name in cell.accumulators else dtype,
                )
                for name in cell.sizes
                for prefix in ("initial", "reset")
            ),
            overridden=overridden,
        )


# With these an initial state of None is zeros.
_STATES_OF_LAYER, _LOOP = BaseRNN.get_initial_state, BaseRNN.inner_loop
_STATES_OF_CELL = BaseCell.get_initial_state


def _has(owner: Any, name: str, method: Any) -> bool:
    """Whether an object's method is this one, also when torch traces it."""
    return name not in vars(owner) and getattr(type(owner), name) is method


def time_mask(mask: Any) -> Any:
    """The mask (B, T), or None; Keras may nest it in a list."""
    first = None if mask is None else keras.tree.flatten(mask)[0]
    if first is None:
        return None
    mask = first if hasattr(first, "shape") else keras.ops.array(mask)
    if len(mask.shape) == 3 and mask.shape[-1] == 1:
        mask = mask[..., 0]
    return mask
