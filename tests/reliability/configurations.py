"""Random configurations of every public layer, for hypothesis.

A configuration has everything that a test needs to build and call a layer:
`arguments`, `x`, `mask`, `states`, `training`, `seed` of the weights. Sizes are
small, so that faults, if there are any, are near.
"""

import dataclasses

import keras
import numpy as np
from descriptors import Row, Wrapper
from hypothesis import strategies as st

# float64 is where values are compared.
DTYPES = (
    *("float64", "float64", "float64", "float32"),
    *("mixed_float16", "mixed_bfloat16", "float16", "bfloat16"),
)
ACTIVATIONS = {
    "tanh": np.tanh,
    "sigmoid": lambda z: 1.0 / (1.0 + np.exp(-z)),
    "relu": lambda z: np.maximum(z, 0.0),
    "linear": lambda z: z,
}
SIZES = (3, 1, 2, 4)
EPSILONS = (1e-6, 1e-5, 1e-3, 0.5)


@dataclasses.dataclass
class Configuration:
    """One layer and one call of it."""

    row: Row
    arguments: dict
    x: np.ndarray  # float64, of values that every dtype holds exactly
    mask: np.ndarray | None
    states: list | None
    training: bool
    seed: int

    @property
    def dtype(self):
        return self.arguments["dtype"]

    @property
    def compute_dtype(self):
        return self.dtype.removeprefix("mixed_")

    def layer(self):
        """A new layer, built, with random weights."""
        layer = self.row.make(**self.arguments)
        layer.build(self.x.shape)
        return layer

    def call(self, layer, x=None):
        """The flat outputs of one call."""
        x = self.x if x is None else x
        options = {}
        if self.row.is_cell:
            options["states"] = list(map(self._tensor, self.states))
        elif self.states is not None:
            options["initial_state"] = list(map(self._tensor, self.states))
        if self.mask is not None:
            options["mask"] = self.mask
        if layer._call_has_training_arg:
            options["training"] = self.training
        return keras.tree.flatten(layer(self._tensor(x), **options))

    def _tensor(self, array):
        return keras.ops.convert_to_tensor(array, dtype=self.compute_dtype)


def _values(seed, shape):
    """Random numbers of few bits: rounding them to float16 changes none."""
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(size=shape) * 16) / 16


def _masks(seed, *sizes):
    """None, or what stays: half of all, in any order; rarely nothing."""
    random = np.random.default_rng(seed + 50).random(sizes)
    some = [random < 0.5, random < 0.8, np.zeros(sizes, bool)]
    return st.sampled_from([None, *some[:2], *some])


def _subsets(sites):
    return st.sets(st.sampled_from(sites)).map(
        lambda chosen: tuple(s for s in sites if s in chosen)
    )


@st.composite
def recurrent(draw, row, fused):
    """A recurrent layer or a cell; `fused` holds the values of use_fused."""
    seed = draw(st.integers(0, 2**16))
    batch, steps = draw(st.sampled_from(SIZES)), draw(st.sampled_from(SIZES))
    features, units = draw(st.integers(1, 3)), draw(st.sampled_from(SIZES))
    arguments = {
        "units": units,
        "dtype": draw(st.sampled_from(DTYPES)),
        "use_bias": draw(st.booleans()),
        "activation": draw(st.sampled_from(list(ACTIVATIONS))),
    }
    if "LSTM" in row.name or "GRU" in row.name:
        arguments["recurrent_activation"] = draw(
            st.sampled_from(("sigmoid", "sigmoid", "tanh", "relu"))
        )
    if "WN" not in row.name:
        arguments["epsilon"] = draw(st.sampled_from(EPSILONS))
    if row.sites:
        arguments["normalize"] = draw(_subsets(row.sites))
    if row.sites and not row.batch_statistics:
        arguments["center"] = draw(st.booleans())
    training = False
    if row.batch_statistics:
        arguments["max_steps"] = draw(st.integers(1, 5))
        training = draw(st.booleans()) and not row.is_cell
    states = [
        _values(seed + 1 + k, (batch, units)) for k in range(row.state_count)
    ]
    mask = None
    if row.is_cell:
        shape = (batch, features)
        if row.batch_statistics:
            states.append(np.zeros((batch, 1)))
    else:
        shape = (batch, steps, features)
        mask = draw(_masks(seed, batch, steps))
        states = draw(st.sampled_from([states, None]))
        arguments["use_fused"] = draw(st.sampled_from(fused))
        for name in (
            "go_backwards",
            "return_sequences",
            "return_state",
            "zero_output_for_mask",
        ):
            arguments[name] = draw(st.booleans())
        # In training it chooses at random.
        for name in ("zoneout", "cell_zoneout")[: row.state_count]:
            share = draw(st.sampled_from((0.0, 0.25)))
            arguments[name] = 0.0 if training else share
    x = _values(seed, shape)
    return Configuration(row, arguments, x, mask, states, training, seed)


@st.composite
def layer_normalization(draw, row, fused):
    """Any rank, any axes."""
    shape = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    axes = draw(st.sets(st.integers(1, len(shape) - 1), min_size=1))
    negative = draw(st.booleans())
    axis = [a - len(shape) if negative else a for a in sorted(axes)]
    arguments = {
        "axis": axis if len(axis) > 1 else axis[0],
        "epsilon": draw(st.sampled_from(EPSILONS)),
        "dtype": draw(st.sampled_from(DTYPES)),
        "center": draw(st.booleans()),
        "scale": draw(st.booleans()),
    }
    seed = draw(st.integers(0, 2**16))
    x = _values(seed, shape)
    return Configuration(row, arguments, x, None, None, False, seed)


def _of_batch_norms():
    """What both batch norms take."""
    return st.fixed_dictionaries(
        {
            "epsilon": st.sampled_from(EPSILONS),
            "dtype": st.sampled_from(DTYPES),
            "center": st.booleans(),
            "scale": st.booleans(),
            "momentum": st.sampled_from((0.0, 0.5, 1.0)),
            "unbiased": st.booleans(),
        }
    )


@st.composite
def batch_normalization(draw, row, fused):
    """Any rank, the features along any axis, masks."""
    shape = draw(st.lists(st.integers(2, 4), min_size=2, max_size=4))
    axis = draw(st.integers(1, len(shape) - 1))
    arguments = {
        "axis": draw(st.sampled_from((axis, axis - len(shape)))),
        **draw(_of_batch_norms()),
    }
    seed = draw(st.integers(0, 2**16))
    mask = None
    rest = [size for a, size in enumerate(shape) if a != axis]
    # A mask that fits without the last axis too would be taken for that.
    ambiguous = axis != len(shape) - 1 and rest == shape[:-1]
    if not (arguments["unbiased"] or ambiguous):
        mask = draw(_masks(seed, *rest))
    x = _values(seed, shape)
    training = draw(st.booleans())
    return Configuration(row, arguments, x, mask, None, training, seed)


@st.composite
def recurrent_batch_norm(draw, row, fused):
    """Steps within and beyond those that have statistics, masks."""
    batch, steps = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    features = draw(st.integers(1, 3))
    arguments = {
        "max_steps": draw(st.integers(1, 5)),
        "sequence_wise": draw(st.booleans()),
        **draw(_of_batch_norms()),
    }
    seed = draw(st.integers(0, 2**16))
    mask = None
    if not arguments["unbiased"]:
        mask = draw(_masks(seed, batch, steps))
    x = _values(seed, (batch, steps, features))
    training = draw(st.booleans())
    return Configuration(row, arguments, x, mask, None, training, seed)


@st.composite
def weight_norm_dense(draw, row, fused):
    """Inputs of any rank."""
    shape = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    dtypes = DTYPES
    if keras.backend.backend() == "torch" and isinstance(row, Wrapper):
        # keras.layers.Dense makes float32 of float64 there.
        dtypes = [dtype for dtype in DTYPES if dtype != "float64"]
    dtype = draw(st.sampled_from(dtypes))
    activations = set(ACTIVATIONS)
    if keras.backend.backend() == "jax" and dtype == "float64":
        # Keras 3.15's tanh makes float32 of float64 there, in Dense too.
        activations.remove("tanh")
    arguments = {
        "units": draw(st.integers(1, 4)),
        "activation": draw(st.sampled_from(sorted(activations))),
        "use_bias": draw(st.booleans()),
        "dtype": dtype,
    }
    seed = draw(st.integers(0, 2**16))
    x = _values(seed, shape)
    return Configuration(row, arguments, x, None, None, False, seed)


def configurations(row, fused):
    """The strategy for the layer of a row."""
    others = {
        "LayerNormalization": layer_normalization,
        "BatchNormalization": batch_normalization,
        "RecurrentBatchNorm": recurrent_batch_norm,
        "WeightNormDense": weight_norm_dense,
        "WeightNormalization": weight_norm_dense,
    }
    return others.get(row.name, recurrent)(row, fused)
