"""A recurrent layer and its oracle on one problem, side by side."""

import dataclasses
import inspect

import keras
import numpy as np
from arrays import close, to_numpy
from backend_gradients import value_and_gradients
from descriptors import BY_NAME, Row, T, U, named_weights, randomize
from reference import gradients
from tolerances import FLOAT64

# (B, T) = (3, 4): what stays. "row" masks all of one row, "all" everything.
MASKS = {
    "none": None,
    "right": np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], bool),
    "left": np.array([[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]], bool),
    "middle": np.array([[1, 0, 1, 1], [1, 0, 0, 1], [1, 1, 1, 1]], bool),
    "row": np.array([[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1]], bool),
    "all": np.zeros((3, 4), bool),
}
# Likewise, where new sequences begin; "mixed" has a masked step among them.
RESETS = {
    "none": None,
    "mixed": np.array([[0, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 1]], bool),
    "all": np.ones((3, 4), bool),
}
# What a case holds beside constructor arguments.
NOT_ARGUMENTS = (
    "name",
    "mask",
    "given_states",
    "reset",
    "given_resets",
    "training",
    "on_cpu",
    "drops",
    "zones",
    "sizes",
)
# Those that all oracles take too, by the same name.
SHARED = {"go_backwards", "zero_output_for_mask", "zoneout", "cell_zoneout"}
# Those that oracles take as functions.
FUNCTIONS = {"activation", "recurrent_activation"}


@dataclasses.dataclass
class Problem:
    """One layer with random weights, inputs and cotangents, in float64."""

    row: Row
    arguments: dict = dataclasses.field(default_factory=dict)
    mask: np.ndarray | None = None
    given_states: bool = False
    reset: np.ndarray | None = None
    given_resets: bool = False  # only with `reset`
    training: bool = False
    choices: dict | None = None  # of zoneout by argument, bool (B, T, U)
    drops: bool = False  # inputs and h, where `dropped` has zeros
    shape: tuple | None = None  # of x; the row's if None
    seed: int = 0

    def __post_init__(self):
        rng = np.random.default_rng(self.seed + 100)
        self.shape = self.shape or self.row.input_shape
        batch, steps, _ = self.shape
        units = self.arguments.get("units", self.row.arguments["units"])
        self.x = rng.normal(size=self.shape)
        width = self.arguments.get("projection") or units  # of h
        states = [
            rng.normal(size=(batch, size))
            for size in (width, units)[: self.row.state_count]
        ]
        sequences = self.arguments.get("return_sequences", False)
        size = (batch, steps, width) if sequences else (batch, width)
        self.cotangents = [rng.normal(size=size)]
        if self.arguments.get("return_state"):
            self.cotangents += [rng.normal(size=s.shape) for s in states]
        self.states = states if self.given_states else None
        self.zeros = [np.zeros_like(state) for state in states]
        self.resets = None
        if self.given_resets and self.reset is not None:
            self.resets = [rng.normal(size=state.shape) for state in states]

        self.dropped = {
            "dropout_mask": 2.0 * rng.integers(0, 2, (batch, self.shape[2])),
            "recurrent_dropout_mask": 2.0 * rng.integers(0, 2, (batch, width)),
        }

    def layer(self, **extra):
        """A new layer; every call gives the same weights."""
        layer = self.row.make(**{"dtype": "float64", **self.arguments, **extra})
        layer.build(self.shape)
        if self.choices is not None:
            layer.cell.zoneouts = lambda shape, training: self.choices
        if self.drops:
            masks = tuple(self.dropped.values())
            layer.cell.dropout_masks = lambda *_: tuple(
                keras.ops.convert_to_tensor(m, layer.compute_dtype)
                for m in masks
            )
        return randomize(layer, self.seed)

    def run(self, layer, **options):
        """The layer's values and gradients."""
        return value_and_gradients(
            layer,
            self.x.astype(layer.dtype),
            self.cotangents,
            states=self.states
            and [state.astype(layer.dtype) for state in self.states],
            mask=self.mask,
            reset=self.reset,
            reset_states=self.resets
            and [state.astype(layer.dtype) for state in self.resets],
            training=self.training,
            **options,
        )

    def outputs(self, layer):
        """The layer's values alone, which takes less time.

        They are computed eagerly, and the layer's variables are updated.
        """
        tensor = keras.ops.convert_to_tensor
        options = {"training": self.training}
        if self.states is not None:
            options["initial_state"] = [
                tensor(state, layer.dtype) for state in self.states
            ]
        if self.mask is not None:
            options["mask"] = tensor(self.mask)
        outputs = layer(tensor(self.x, layer.dtype), **options)
        return [np.array(to_numpy(y)) for y in keras.tree.flatten(outputs)]

    def oracle(self, arrays, **options):
        """Outputs by the oracle, and what else it returns.

        `arrays` holds x, state0, ... and every weight by name.
        """
        resets = [
            arrays.get(f"reset{k}", zero) for k, zero in enumerate(self.zeros)
        ]
        states = [
            arrays.get(f"state{k}", reset) for k, reset in enumerate(resets)
        ]
        if self.reset is not None:
            options |= {"reset": self.reset, "reset_state": resets}
        own = inspect.signature(self.row.oracle).parameters
        shared = (SHARED | {*own}) - FUNCTIONS
        options |= {n: a for n, a in self.arguments.items() if n in shared}
        if self.row.batch_statistics:
            options["training"] = self.training
        options |= self.choices or {}
        options |= self.dropped if self.drops else {}
        y, final, *rest = self.row.oracle(
            arrays, arrays["x"], states, mask=self.mask, **options
        )
        outputs = [y if self.arguments.get("return_sequences") else y[:, -1]]
        if self.arguments.get("return_state"):
            outputs += final
        return outputs, rest

    def arrays(self, layer):
        """What the oracle needs: x, the states and the weights."""
        arrays = {"x": self.x, **named_weights(layer)}
        for k, state in enumerate(self.states or []):
            arrays[f"state{k}"] = state
        for k, state in enumerate(self.resets or []):
            arrays[f"reset{k}"] = state
        return arrays

    def expected(self, layer, **options):
        """Outputs, gradients and whatever else, by the oracle."""
        arrays = self.arrays(layer)
        fixed = {
            v.name: arrays.pop(v.name) for v in layer.non_trainable_weights
        }

        def loss(arrays):
            outputs, _ = self.oracle({**arrays, **fixed}, **options)
            return gradients.inner(outputs, self.cotangents)

        outputs, rest = self.oracle({**arrays, **fixed}, **options)
        return outputs, gradients.complex_step(loss, arrays), rest

    def check(self, layer=None, tolerance=FLOAT64, oracle=None, **options):
        """Fail unless layer and oracle agree; returns the layer's result."""
        layer = layer or self.layer()
        outputs, wanted, _ = self.expected(layer, **(oracle or {}))
        result = self.run(layer, **options)
        compare(result, outputs, wanted, tolerance)
        return result


def compare(result, outputs, wanted, tolerance=FLOAT64):
    """Fail unless values and every gradient agree."""
    close(result.outputs, outputs, "output", **tolerance)
    assert set(result.gradients) == set(wanted)
    close(result.gradients, wanted, **tolerance)


def same(first, second, tolerance=FLOAT64):
    """Fail unless two results agree."""
    compare(first, second.outputs, second.gradients, tolerance)


def arguments_of(row, case):
    """The constructor arguments among a pairwise case, for this layer."""
    arguments = {
        name: value for name, value in case.items() if name not in NOT_ARGUMENTS
    }
    if row.batch_statistics and arguments.get("max_steps") is None:
        arguments["max_steps"] = T
    if "state" not in arguments.get("normalize", ("state",)):
        arguments.pop("carry_normalized_state", None)  # which needs the site
    if "sum" not in arguments.get("normalize", ()):
        arguments.pop("use_sum_bias", None)  # likewise
    units = arguments.get("units", case.get("sizes", (U,))[-1])
    if (arguments.get("projection") or 0) >= units:
        arguments.pop("projection")
    if row.name == "LNSimpleRNN" or "GRU" in row.name:
        arguments.pop("cell_zoneout", None)
    return arguments


def layer_of(name, shape=None, **arguments):
    """A built float64 layer with random weights.

    LayerNormalization is one over time and features.
    """
    if name != "LayerNormalization":
        return Problem(BY_NAME[name], arguments, shape=shape).layer()
    layer = BY_NAME[name].make(axis=(-2, -1), dtype="float64")
    layer.build(shape or BY_NAME[name].input_shape)
    return randomize(layer)
