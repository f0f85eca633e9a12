"""A recurrent cell, a run of it over sequences, and the arrays of the run.

Letters: B batch, T time, D input features, U units, P the size of h, n gates,
G = nU.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from keras_ln.backend import TraceContext
from keras_ln.engine import arguments, dtypes
from keras_ln.engine.activations import ACTIVATIONS, Activation, get_activation

Switch: TypeAlias = bool | Literal["auto"]
Tensors: TypeAlias = dict[str, Any]


class Vector(NamedTuple):
    """A weight of a cell besides its two matrices."""

    name: str
    size: int  # in multiples of U
    # The site that the vector scales or shifts, or None for a bias. The site of
    # the simple RNN has no name.
    site: str | None = None
    # Whether `center=False` leaves it out: another shift does the same.
    redundant: bool = False


# Compared by identity: it is a key of the cache of programs.
@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """A recurrent cell without its two matrix products.

    Its weights are `kernel` (D, nU), `recurrent_kernel` (P, nU) and `vectors`.
    """

    # `step(x_product, h_product, states, spec, norms)`, with x W and h R
    # (B, nU): the new states, h first, and the statistics by site.
    step: Callable[..., tuple[tuple[Any, ...], Any]]
    # `step_vjp(x_product, h_product, states, spec, norms, factors,
    # cotangents)`: gradients of x W and h R, of the states except through h R
    # (None for none), and of the vectors by name. The factors come from
    # `LayerNorms.factors`, by site.
    step_vjp: Callable[..., tuple[Any, Any, tuple[Any, ...], dict[str, Any]]]
    # `norms(weights, spec, valid, moving, kept)`: the sites of one step. Only
    # batch statistics use `valid`, the step's mask (B, 1), and `moving`, the
    # statistics that replace the batch's. Each may be None. For `kept` see
    # `LayerNorms.once`.
    norms: Callable[..., Any]
    gates: int  # n
    # The letter of each state's size, h first.
    states: Mapping[str, str]
    # All possible vectors, in the order in which layers create them.
    vectors: tuple[Vector, ...]
    # The fields of `Spec` that steps and norms use; the loops use others.
    options: tuple[str, ...]
    # The gates that share a row's statistics, in multiples of U, by
    # `Spec.groups`.
    segments: Mapping[str, tuple[int, ...]]
    # Whether the statistics are taken over the batch. They are then results
    # too, and `step_vjp` cannot take the rows of all steps at once.
    batch_statistics: bool = False
    # The cell's name in keras-ln-kernels, or None if they do not have it.
    native_name: str | None = None
    # `norms` for `Spec.fused_norms`, or None.
    fused_norms: Callable[..., Any] | None = None

    @property
    def weights(self) -> tuple[str, ...]:
        """The names of all possible weights."""
        return (*MATRICES, *(vector.name for vector in self.vectors))

    def sizes(
        self, units: int, projection: int | None = None
    ) -> dict[str, int]:
        """The sizes of the states, by name."""
        letters = {"U": units, "P": projection or units}
        return {name: letters[size] for name, size in self.states.items()}

    def weight_shapes(
        self,
        features: int,
        units: int,
        vectors: tuple[Vector, ...],
        projection: int | None = None,
    ) -> dict[str, tuple[int, ...]]:
        """The shapes of the matrices and of these vectors, by name."""
        shapes: dict[str, tuple[int, ...]] = {
            "kernel": (features, self.gates * units),
            "recurrent_kernel": (projection or units, self.gates * units),
        }
        if projection:
            shapes["projection_kernel"] = (units, projection)
        return shapes | {v.name: (v.size * units,) for v in vectors}

    def __deepcopy__(self, memo: Any) -> "Cell":
        """Returns the cell itself: copied layers run the same programs."""
        return self


class Spec(NamedTuple):
    """The computation without its arrays; the cache key of its compilation."""

    cell: Cell
    epsilon: float = 1e-5
    activation: Activation = ACTIVATIONS["tanh"]
    recurrent_activation: Activation = ACTIVATIONS["sigmoid"]
    # LSTM only: whether the next step gets the normalised c.
    carry_normalized_state: bool = False
    # The gates that share a row's statistics: a key of `Cell.segments`.
    groups: str = "paper"
    # Whether the site "sum" replaces "kernel" and "recurrent".
    summed: bool = False
    # P, if h is m P_k, with the m that the step gives; else None.
    projection: int | None = None
    # Whether to process the last step first.
    go_backwards: bool = False
    # Whether to return the outputs of every step.
    return_all_outputs: bool = True
    # The shares of h and of c that zoneout keeps, if it is an expectation.
    zoneout_share: float = 0.0
    cell_zoneout_share: float = 0.0
    # The dtype of sequences, matrices and outputs.
    dtype: str = "float32"
    # The dtype of the computation, at least float32.
    accumulator_dtype: str = "float32"
    # Whether to launch few kernels at the cost of more arithmetic: the loops
    # keep no statistics and give only the cotangents of states. The rest is
    # computed from these after the loops, for all steps at once.
    recompute_in_backward: bool = False
    # Whether no gradient passes the scales of the norms. Rows without variance
    # are then scaled like the others, in fewer kernels.
    skip_flat_rows: bool = False
    # Whether norms and gradients of activations are single operations of the
    # framework; the loop forward then keeps what its gradient needs.
    fused_norms: bool = False

    def norms(self, *arguments: Any, **more: Any) -> Any:
        """The sites of one step, for arguments of `Cell.norms`."""
        fused = self.cell.fused_norms if self.fused_norms else None
        return (fused or self.cell.norms)(*arguments, **more)

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of zoneout, h first."""
        return (self.zoneout_share, self.cell_zoneout_share)

    @property
    def vectors(self) -> tuple[Vector, ...]:
        """The vectors that the cell may have here."""
        if not self.summed:
            return tuple(v for v in self.cell.vectors if v.site != "sum")
        # Beside the bias of a GRU's sum another would do the same.
        others = ("kernel", "recurrent")
        return tuple(
            v
            for v in self.cell.vectors
            if v.site not in others and v.name != "recurrent_bias"
        )


def spec_of(
    cell: Cell,
    dtype: str,
    *,
    epsilon: float = 1e-5,
    activation: Any = "tanh",
    recurrent_activation: Any = "sigmoid",
    groups: str = "paper",
    **fields: Any,
) -> Spec:
    """The `Spec` for arguments; further arguments are fields of `Spec`."""
    # The gates of a sum are one vector, unless each stands by itself.
    if fields.get("summed") and groups == "paper":
        groups = "all"
    if cell.segments[groups] == cell.segments["paper"]:
        groups = "paper"
    return Spec(
        cell,
        arguments.check_positive("epsilon", epsilon),
        get_activation(activation),
        get_activation(recurrent_activation),
        groups=groups,
        dtype=dtype,
        accumulator_dtype=dtypes.at_least_float32(dtype),
        **fields,
    )


class Overridden(NamedTuple):
    """A Keras cell of a subclass that overrides methods."""

    keras_cell: Any
    methods: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self.keras_cell).__name__


class RunOptions(NamedTuple):
    """The caller of a computation, and how it may be done."""

    # The caller's name, for messages.
    owner: str = "the op"
    # "auto" runs the first implementation that can, True raises an error if
    # only the loop can, False runs the loop.
    use_fused: Switch = "auto"
    # Whether to unroll the loop over time; T must be known.
    unroll: bool = False
    # Whether a gradient is likely to be asked for.
    training: bool = True
    # Whether the output is zero at masked steps.
    zero_output_for_mask: bool = False
    # Whether the output is zero before the first valid step of a row; otherwise
    # it is the initial h.
    zero_before_valid: bool = False
    # What messages call the initial states.
    states_argument: str = "initial_state"
    # The dtypes that the caller gives to arrays that have other ones.
    dtypes: tuple[tuple[str, str], ...] = ()
    overridden: Overridden | None = None
    # The program that runs it, or is being traced.
    context: TraceContext = TraceContext()


class Array(NamedTuple):
    """The properties of an array by its name."""

    # A letter for each axis, to check shapes.
    letters: str
    # The accepted values: "real", floating point; "factor", numbers, which
    # become floating point; "flag", bool or zeros and ones; "choice", bool.
    values: str = "real"
    # Whether it has the computation's dtype instead of the sequences'.
    accumulated: bool = False
    # Whether it has a gradient; the others are constants.
    learned: bool = True


_FLAG = Array("BT", "flag", learned=False)
_STATISTIC = Array("TG", accumulated=True, learned=False)
# All arrays except the weights, which each cell lists.
ARRAYS = {
    "x": Array("BTD"),
    # False at masked steps.
    "mask": _FLAG,
    # Dropout masks of the inputs and of h, scaled.
    "input_mask": Array("BD", "factor", learned=False),
    "recurrent_mask": Array("BP", "factor", learned=False),
    # The choices of zoneout: True for units that keep their state.
    "zoneout": Array("BTP", "choice", learned=False),
    "cell_zoneout": Array("BTU", "choice", learned=False),
    # Before the first step. A state keeps its dtype.
    "initial_h": Array("BP"),
    "initial_c": Array("BU"),
    # True at steps before which a row's states are replaced by `reset_h` and
    # `reset_c`, or by zeros.
    "reset": _FLAG,
    "reset_h": Array("BP"),
    "reset_c": Array("BU"),
    # Of a cell with batch statistics: they replace the batch's, and are in the
    # order of the visits.
    "kernel_moving_mean": _STATISTIC,
    "kernel_moving_variance": _STATISTIC,
    "recurrent_moving_mean": _STATISTIC,
    "recurrent_moving_variance": _STATISTIC,
    "state_moving_mean": _STATISTIC._replace(letters="TU"),
    "state_moving_variance": _STATISTIC._replace(letters="TU"),
}
# The other weights are vectors, in the computation's dtype.
MATRICES = ("kernel", "recurrent_kernel")
# The names of the letters' axes in messages.
WORDS = dict(B="batch", T="time", D="features", U="units", P="units")
