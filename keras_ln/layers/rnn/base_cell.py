"""The base of the recurrent cells: weights, steps, dropout, zoneout, states.

Letters: B batch, T time, D input features, U units, n gates.
"""

import warnings
from collections.abc import Callable
from typing import Any

import keras

from keras_ln._keras import (
    DropoutRNNCell,
    is_loading,
    placed,
    reseeded,
    torch_device,
)
from keras_ln.engine import arguments
from keras_ln.engine.scan import project, step
from keras_ln.engine.spec import ARRAYS, Cell, Spec, Vector
from keras_ln.engine.zoneout import NAMES, SeedAt, apply_zoneout, counted, draw
from keras_ln.layers.base_layer import BaseLayer
from keras_ln.layers.constructor_arguments import of_keras
from keras_ln.ops.norms.cell_norms import check_sites

# Arguments that weights, states or equations are made from. They are set only
# once; the config would have others.
_FIXED = {
    *("units", "use_bias", "normalize", "center", "groups", "max_steps"),
    *("reset_after", "zoneout", "cell_zoneout", "use_sum_bias"),
    "projection",
}

# The classes that have warned of a single feature.
_WARNED: set[type] = set()


class BaseCell(BaseLayer, DropoutRNNCell):
    """A recurrent cell that runs the equations of an op.

    A class supplies `equations`; its layer runs `project` for all steps at
    once, then `step` over time.

    The layer draws zoneout's choices for all steps at once. A cell without a
    layer, as in `keras.layers.RNN`, draws the choices of one step from the
    sequence's seed and the step's number, which is an additional state. The
    seed is the generator's state. The loop over time only reads it, because
    JAX cannot assign it there; it advances at the end of the sequence.
    """

    # The cell of `keras_ln.ops`.
    equations: Cell
    # All weights' names in the order of creation, if there are other weights.
    weight_names: tuple[str, ...]
    # Whether mixed precision casts the kernels on the way into a call.
    matrix_autocast = True
    # The states that are sums, carried in at least float32.
    accumulators: tuple[str, ...] = ()
    # How many of the last states are step counters, of any dtype. Zoneout needs
    # one, because a single step derives its random choices from the count.
    counters = 0
    # The methods that a subclass overrides.
    overridden_methods: tuple[str, ...] = ()
    # False uses zoneout's expectation in training too.
    zoneout_chooses = True
    # Whether a step without a layer has used the current seed.
    has_chosen = False

    units: int
    activation: Callable[[Any], Any]
    use_bias: bool
    epsilon: float
    seed: int | None
    dropout: float
    recurrent_dropout: float
    # The sites to normalise, out of all `sites`; `center` adds redundant betas.
    normalize: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    center = True
    use_sum_bias = False
    # P, the size of h, if it is a product with a `projection_kernel`.
    projection: int | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Names the weights, and notes which methods a subclass overrides."""
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if "equations" in own and "weight_names" not in own:
            cls.weight_names = cls.equations.weights
        for name in getattr(cls, "weight_names", ()):
            if name in ARRAYS and "_moving_" not in name:
                raise ValueError(
                    f"Name the weight `{name}` otherwise: an array of a call "
                    "has that name."
                )
        overridden: set[str] = set()
        for kind in cls.__mro__:
            if "equations" in vars(kind):
                break
            overridden |= {"call", "project", "step"} & {*vars(kind)}
        cls.overridden_methods = tuple(sorted(overridden))

    def __setattr__(self, name: str, value: Any) -> None:
        """As in Keras; `AttributeError` for another value of some arguments."""
        made = "settings_names" in vars(self)
        if made and name in _FIXED and getattr(self, name, value) != value:
            raise AttributeError(
                f"`{name}` cannot be changed: the cell was made with it. Make "
                f"a new cell. Received: {name}={value!r}"
            )
        super().__setattr__(name, value)

    def __init__(self, named: dict[str, Any], **kwargs: Any) -> None:
        """Keeps the named arguments, and passes `kwargs` to Keras."""
        super().__init__(**of_keras(kwargs))
        # Fewer values than in other layers: a first state of 0 has no variance.
        if "epsilon" in named:
            arguments.check_positive("epsilon", named["epsilon"])
        if "normalize" in named:
            check_sites(named["normalize"], self.sites)
        self.keep_arguments(named)
        if self.use_sum_bias and "sum" not in self.normalize:
            raise ValueError(
                'use_sum_bias=True needs "sum" in `normalize`, the site that '
                f"it shifts. Received: normalize={self.normalize!r}"
            )
        self.seed_generator = keras.random.SeedGenerator(seed=self.seed)
        for name in self.weight_names:
            setattr(self, name, None)
        self.settings_names = tuple(n for n in Spec._fields if n in named)
        self.has_zoneout = any(self.zoneout_rates().values())
        self.counters = int(self.counters or self.has_zoneout)
        sizes = [*self.sizes.values(), *[1] * self.counters]
        self.state_size: Any = sizes if len(sizes) > 1 else self.units
        self.output_size = self.sizes["h"]
        self.reset_dropout_mask()
        self.reset_recurrent_dropout_mask()

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of h and, if the cell has it, of c, by name."""
        return self.equations.sizes(self.units, self.projection)

    def build(self, input_shape: Any) -> None:
        """Creates the weights for inputs (B, D)."""
        arguments.check_rank("inputs", input_shape, "batch, features")
        features = arguments.check_known("inputs", input_shape, -1)
        if features == 1:
            self._warn_of_one_feature()
        for name, shape in self.weight_shapes(features).items():
            if len(shape) == 2:
                self.add_matrix(name, shape)
            else:
                start = self.initial_value(name)
                self.add_as_asked(name, shape, initializer=start)

    def _warn_of_one_feature(self) -> None:
        """Warns, once per class, that a norm of x W keeps the sign of x."""
        if (
            "kernel" not in self.normalize
            or self.equations.batch_statistics
            or type(self) in _WARNED
            or is_loading()
        ):
            return
        _WARNED.add(type(self))
        others = tuple(n for n in self.normalize if n != "kernel")
        warnings.warn(
            f"{type(self).__name__.removesuffix('Cell')} normalises x W, which "
            "keeps only the sign of a single feature x. Give it [x, 1 - x], or "
            f'leave "kernel" out: normalize={others!r}. Received: inputs with '
            "one feature.",
            stacklevel=3,
        )

    def weight_shapes(self, features: int) -> dict[str, tuple[int, ...]]:
        """The weights for D features in order of creation, built or not."""
        vectors = tuple(filter(self.has, self.equations.vectors))
        return self.equations.weight_shapes(
            features, self.units, vectors, self.projection
        )

    def has(self, vector: Vector) -> bool:
        """Whether the cell's arguments ask for the vector."""
        if vector.site is None:
            return self.use_bias
        if vector.name == "sum_bias":
            return self.use_sum_bias
        # The site without a name is always normalised.
        normalized = not vector.site or vector.site in self.normalize
        return normalized and (self.center or not vector.redundant)

    def add_matrix(self, name: str, shape: tuple[int, int]) -> None:
        """Creates `kernel`, `recurrent_kernel` or `projection_kernel`."""
        kind = name.removesuffix("_kernel")
        self.add_as_asked(name, shape, kind, autocast=self.matrix_autocast)

    def initial_value(self, name: str) -> Any:
        """The initializer of a vector."""
        kind = name.rpartition("_")[2]
        initializer = getattr(self, f"{kind}_initializer")
        return initializer if name == "bias" else reseeded(initializer)

    def tensors(self) -> dict[str, Any]:
        """The weights by name, in the dtypes of a call."""
        on_cpu = torch_device is not None and torch_device().startswith("cpu")
        tensors = {}
        for name in self.weight_names:
            weight = getattr(self, name)
            if weight is None:
                continue
            # On torch, converting a variable takes twice as long.
            tensor = getattr(weight, "value", weight) if on_cpu else None
            if not getattr(tensor, "is_cpu", False):
                tensor = keras.ops.convert_to_tensor(weight)
            tensors[name] = tensor
        return tensors

    def settings(self) -> dict[str, Any]:
        """The arguments of the cell that are settings of its equations."""
        settings = {name: getattr(self, name) for name in self.settings_names}
        return settings | {"summed": "sum" in self.normalize}

    def project(self, inputs: Any, weights: dict[str, Any]) -> Any:
        """The products (..., nU) of inputs (..., D) with the kernel."""
        return project(inputs, weights)

    def step(
        self,
        x_product: Any,
        states: tuple[Any, ...],
        weights: dict[str, Any],
        recurrent_mask: Any,
    ) -> tuple[Any, ...]:
        """The states after one step; x_product is (B, nU)."""
        return step(
            self.equations,
            x_product,
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
        the gates (Gal and Ghahramani 2016); None if nothing is dropped.
        """
        if not training:
            return None, None
        of_x = self.get_dropout_mask(inputs)
        return of_x, self.get_recurrent_dropout_mask(h)

    def call(
        self, inputs: Any, states: Any, training: bool | None = False
    ) -> tuple[Any, Any]:
        """One step: inputs (B, D) and states (B, U) -> (h, states)."""
        inputs = self.check_call(inputs, states)
        nested = keras.tree.is_nested(states)
        states = tuple(map(placed, states if nested else (states,)))
        count = len(self.sizes)
        states, counters = states[:count], states[count:]
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
            kinds = ", ".join(type(state).__name__ for _, state in named)
            raise ValueError(
                f"Argument `states` of {type(self).__name__} must be "
                f"{arguments.tensors(len(sizes))}, for example "
                "cell.get_initial_state(batch_size=...). Received: "
                f"{len(named)}{kinds and f' ({kinds})'}."
            )
        for k, (name, state) in enumerate(named):
            if k < len(sizes) - self.counters:
                # An integer state would truncate every step's update.
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
            given = ", ".join(sorted(of_keras_2))
            raise TypeError(
                f"{type(self).__name__} is a cell for keras.layers.RNN of "
                f"Keras 3. Received: the arguments {given}, which tf_keras."
                "layers.RNN (Keras 2) passes. Build the model with `keras`."
            )
        zeros, dtype = keras.ops.zeros, self.compute_dtype
        states = [zeros((batch_size, n), dtype) for n in self.sizes.values()]
        return states + [zeros((batch_size, 1), "float32")] * self.counters

    def zoneout_rates(self) -> dict[str, float]:
        """The rates of h and, if the cell has a state c, of c, by name."""
        return {name: getattr(self, name) for name in NAMES[: len(self.sizes)]}

    def zoneouts(
        self, shape: tuple[Any, ...], training: bool | None
    ) -> dict[str, Any]:
        """The choices of zoneout (B, T, U) by name; {} if none are made."""
        if training and self.zoneout_chooses and self.has_zoneout:
            return self._drawn(shape, self.seed_generator)
        return {}

    def _drawn(self, shape, seed):
        drawn = draw(self.zoneout_rates(), shape, seed)
        if self.projection and "zoneout" in drawn:
            drawn["zoneout"] = drawn["zoneout"][..., : self.projection]
        return drawn

    def apply_zoneout(
        self, new: Any, old: Any, counter: Any, training: bool | None
    ) -> tuple[Any, ...]:
        """The states (B, U) after zoneout, for a step without a layer.

        The counter (B, 1) holds the number of steps that each row has done.
        """
        rates = self.zoneout_rates()
        if not self.has_zoneout:
            return tuple(new)
        choices: dict[str, Any] = {}
        if training:
            self.has_chosen = True
            seed = SeedAt(self.seed_generator.state.value, counter)
            choices = self._drawn(keras.ops.shape(new[-1]), seed)
        return apply_zoneout(tuple(rates.values()), new, old, choices)

    def reset_recurrent_dropout_mask(self) -> None:
        """Lets the next sequence draw; `keras.layers.RNN` ends with it."""
        super().reset_recurrent_dropout_mask()
        if self.has_chosen:
            self.seed_generator.next()
            self.has_chosen = False

    def forget_dropout_masks(self) -> None:
        """Makes the next sequence draw its own masks and choices.

        A layer does this automatically. If you write the loop over the steps,
        call it once per sequence in training.
        """
        # Also while a function is compiled that runs the steps afterwards.
        self.has_chosen = self.has_zoneout
        self.reset_dropout_mask()
        self.reset_recurrent_dropout_mask()
