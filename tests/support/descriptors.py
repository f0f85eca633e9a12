"""One row per public layer and cell; every cross-cutting test reads it.

Letters: B batch, T time, D input features, U units.
"""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
from arrays import to_numpy
from reference.bn_lstm import bn_lstm
from reference.ln_gru import gru
from reference.ln_lstm import lstm
from reference.ln_simple_rnn import simple_rnn
from reference.wn_lstm import wn_lstm

import keras_ln
from keras_ln import ops
from keras_ln.layers.constructor_arguments import TFA_NAMES

B, T, D, U = 3, 4, 2, 3

LSTM_SITES = ("kernel", "recurrent", "state")
GRU_SITES = ("kernel", "recurrent")
EACH_SITE = (LSTM_SITES, ("kernel",), ("recurrent",), ("state",), ())
BOTH = (True, False)


@dataclasses.dataclass(frozen=True)
class Row:
    """What the tests know of one public layer.

    `weights` maps names to shapes, in the layer's order. `oracle(weights, x,
    states, **options)` returns (y, final states, ...). A recurrent layer
    names its cell, a cell has `is_cell`; `sites` is the default of
    `normalize`, None where there is no such argument. `twin` is the layer of
    Keras that it may stand for. Of a recurrent layer and its cell, `op` names
    the function, `cell_name` is what Keras calls the cell, and `options` are
    the values that the oracle knows of each argument of the layer's own.
    """

    name: str
    arguments: dict
    input_shape: tuple
    weights: dict
    cell: str | None = None
    is_cell: bool = False
    state_count: int = 0
    oracle: Callable | None = None
    sites: tuple | None = None
    batch_statistics: bool = False
    twin: type | None = None
    op: str = ""
    cell_name: str = ""
    options: dict = dataclasses.field(default_factory=dict)

    @property
    def layer_class(self):
        return getattr(keras_ln, self.name)

    @property
    def is_recurrent(self):
        return self.cell is not None

    @property
    def normalizes(self):
        """Whether there is a norm of what is summed, with an epsilon."""
        return not self.name.startswith(("WN", "Weight"))

    @property
    def function(self):
        """The public function of a recurrent layer."""
        return getattr(ops, self.op)

    def make(self, **arguments):
        """A new layer with the row's arguments, and these."""
        return self.layer_class(**{**self.arguments, **arguments})

    def constructor_arguments(self):
        """What `layer_class` takes for the row's arguments."""
        return self.arguments

    def cell_states(self, rng=None):
        """States for one call of a cell; zeros without a generator."""
        if not self.is_cell:
            return None
        states = [
            np.zeros((B, U), "float32")
            if rng is None
            else rng.normal(size=(B, U)).astype("float32")
            for _ in range(self.state_count)
        ]
        if self.batch_statistics:
            states.append(np.zeros((B, 1), "float32"))  # the step counter
        return states

    def __str__(self):
        return self.name


@dataclasses.dataclass(frozen=True)
class Wrapper(Row):
    """A wrapper, around a dense layer with the row's arguments."""

    def make(self, **arguments):
        """The arguments of every layer are the wrapper's, but for `dtype`."""
        known = ("name", "trainable", *TFA_NAMES)
        own = {n: arguments.pop(n) for n in known if n in arguments}
        return self.layer_class(
            **self.constructor_arguments(**arguments), **own
        )

    def constructor_arguments(self, **others):
        """The layer inside."""
        arguments = {**self.arguments, **others}
        return {"layer": keras.layers.Dense(**arguments, name="dense")}


def _rnn(prefix, *, weights, twin, **facts):
    """The rows of a cell and of its layer."""
    # The step counter makes no difference to the arguments.
    common = {"weights": weights, **facts}
    arguments = {"units": U}
    if facts.get("batch_statistics"):
        arguments["max_steps"] = T
    cell_twin = getattr(keras.layers, f"{twin.__name__}Cell")
    return [
        Row(
            *(f"{prefix}Cell", arguments, (B, D)),
            **{"is_cell": True, "twin": cell_twin, **common},
        ),
        Row(
            *(prefix, arguments, (B, T, D)),
            **{"cell": f"{prefix}Cell", "twin": twin, **common},
        ),
    ]


MOVING = ("moving_mean", "moving_variance")


def _kernels(gates, bias=False):
    shapes = {"kernel": (D, gates * U), "recurrent_kernel": (U, gates * U)}
    return shapes | ({"bias": (gates * U,)} if bias else {})


def _sites(gates, *sites, vectors, steps=()):
    """Weights of normalised sites, in the order of the layers."""
    names = [f"{site}_{vector}" for site in sites for vector in vectors]
    return dict.fromkeys(names, (*steps, gates * U))


ROWS = [
    Row(
        *("LayerNormalization", {}, (B, T, D)),
        {"gamma": (D,), "beta": (D,)},
        twin=keras.layers.LayerNormalization,
    ),
    Row(
        *("BatchNormalization", {}, (B, T, D)),
        dict.fromkeys(("gamma", "beta", *MOVING), (D,)),
        batch_statistics=True,
        twin=keras.layers.BatchNormalization,
    ),
    Row(
        *("RecurrentBatchNorm", {"max_steps": T}, (B, T, D)),
        {"gamma": (D,), "beta": (D,), **dict.fromkeys(MOVING, (T, D))},
        batch_statistics=True,
    ),
    Row(
        *("WeightNormDense", {"units": U}, (B, D)),
        {"kernel": (D, U), "g": (U,), "bias": (U,)},
        twin=keras.layers.Dense,
    ),
    Wrapper(
        *("WeightNormalization", {"units": U}, (B, D)),
        {"g": (U,), "kernel": (D, U), "bias": (U,)},
    ),
    *_rnn(
        "LNSimpleRNN",
        weights={**_kernels(1), "gamma": (U,), "beta": (U,)},
        state_count=1,
        oracle=simple_rnn,
        twin=keras.layers.SimpleRNN,
        op="ln_simple_rnn",
        cell_name="ln_simple_rnn_cell",
        options={"use_bias": BOTH},
    ),
    *_rnn(
        "LNGRU",
        weights={
            **_kernels(3),
            **_sites(3, "kernel", "recurrent", vectors=("gamma", "beta")),
        },
        state_count=1,
        oracle=gru,
        sites=GRU_SITES,
        twin=keras.layers.GRU,
        op="ln_gru",
        cell_name="lngru_cell",
        options={
            "groups": ("paper", "gate", "all"),
            "use_bias": BOTH,
            "center": BOTH,
            "normalize": (
                *(GRU_SITES, ("kernel",), ("recurrent",), ()),
                ("sum",),
            ),
            "use_sum_bias": BOTH,
        },
    ),
    *_rnn(
        "LNLSTM",
        weights={
            **_kernels(4, bias=True),
            **_sites(4, "kernel", "recurrent", vectors=("gamma", "beta")),
            **_sites(1, "state", vectors=("gamma", "beta")),
        },
        state_count=2,
        oracle=lstm,
        sites=LSTM_SITES,
        twin=keras.layers.LSTM,
        op="ln_lstm",
        cell_name="lnlstm_cell",
        options={
            "use_bias": BOTH,
            "center": BOTH,
            "normalize": (*EACH_SITE, ("sum", "state"), ("sum",)),
            "groups": ("paper", "gate", "all"),
            "carry_normalized_state": (False, True),
            "use_sum_bias": BOTH,
            "projection": (None, 2),
        },
    ),
    *_rnn(
        "BNLSTM",
        weights={
            **_kernels(4, bias=True),
            **_sites(4, "kernel", "recurrent", vectors=("gamma",)),
            **_sites(1, "state", vectors=("gamma", "beta")),
            **_sites(4, "kernel", "recurrent", vectors=MOVING, steps=(T,)),
            **_sites(1, "state", vectors=MOVING, steps=(T,)),
        },
        state_count=2,
        oracle=bn_lstm,
        sites=LSTM_SITES,
        batch_statistics=True,
        twin=keras.layers.LSTM,
        op="bn_lstm",
        cell_name="bnlstm_cell",
        options={"training": BOTH, "use_bias": BOTH, "normalize": EACH_SITE},
    ),
    *_rnn(
        "WNLSTM",
        weights={
            "kernel": (D, 4 * U),
            "kernel_g": (4 * U,),
            "recurrent_kernel": (U, 4 * U),
            "recurrent_g": (4 * U,),
            "bias": (4 * U,),
        },
        state_count=2,
        oracle=wn_lstm,
        twin=keras.layers.LSTM,
        op="wn_lstm",
        cell_name="wnlstm_cell",
        options={"use_bias": BOTH, "projection": (None, 2)},
    ),
]
BY_NAME = {row.name: row for row in ROWS}
CELLS = [row for row in ROWS if row.is_cell]
SEQUENCE_LAYERS = [row for row in ROWS if row.is_recurrent]
LAYERS = [row for row in ROWS if not row.is_cell]
# Each step has the same statistics, and a row of a batch is alone.
STEPWISE = [row for row in SEQUENCE_LAYERS if not row.batch_statistics]
NORMALIZED = [row for row in SEQUENCE_LAYERS if row.normalizes]


def randomize(layer, seed=0):
    """Give every weight random values: defaults of 0 and 1 hide faults."""
    rng = np.random.default_rng(seed)
    for variable in layer.weights:
        variable.assign(random_weight(variable.name, variable.shape, rng))
    return layer


def random_weight(name, shape, rng):
    """Values for one weight, of the kind that its name promises."""
    noise = rng.normal(size=tuple(shape))
    if name.endswith("moving_variance"):
        return np.exp(0.5 * noise)
    if name.endswith("gamma") or name.split("_")[-1] == "g":
        return 1.0 + 0.3 * noise
    return 0.7 * noise


def named_weights(layer):
    """Copies of the weights in float64, by name."""
    return {
        variable.name: np.array(to_numpy(variable.value), "float64")
        for variable in layer.weights
    }
