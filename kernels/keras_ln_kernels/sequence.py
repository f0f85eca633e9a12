"""A recurrent cell over sequences, forward and backward.

Letters: B batch, T steps, D features of the inputs, U units, n gates.
"""

import ctypes
from typing import Any, NamedTuple

import numpy as np

from keras_ln_kernels.arrays import address
from keras_ln_kernels.library import ABI_VERSION, Backward, Forward, Problem
from keras_ln_kernels.library import library as load


class Cell(NamedTuple):
    """What the library must be told of a cell."""

    number: int
    gates: int
    states: tuple[str, ...]
    # Vectors by name: their length in units, and the name they have in C.
    vectors: dict[str, tuple[int, str]]


def _vectors(gates: int, *names: str) -> dict[str, tuple[int, str]]:
    return {name: (gates, name) for name in names}


_SITES = ("kernel_gamma", "kernel_beta", "recurrent_gamma", "recurrent_beta")
CELLS = {
    "lstm": Cell(
        0,
        4,
        ("h", "c"),
        _vectors(4, "bias", *_SITES) | _vectors(1, "state_gamma", "state_beta"),
    ),
    "gru": Cell(1, 3, ("h",), _vectors(3, "bias", "recurrent_bias", *_SITES)),
    "simple_rnn": Cell(
        2,
        1,
        ("h",),
        {
            "bias": (1, "bias"),
            "gamma": (1, "kernel_gamma"),
            "beta": (1, "kernel_beta"),
        },
    ),
}
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
_MASKS = (np.dtype(np.bool_), np.dtype(np.uint8))
_BYTES = (np.dtype(np.uint8),)


class Result(NamedTuple):
    """What forward computes."""

    outputs: Any  # (B, T, U) in the order of visits, or None
    final_states: tuple[Any, ...]  # (B, U), h first
    residuals: Any  # bytes for `Sequence.backward`, or None


class Gradients(NamedTuple):
    """What backward computes; each has the shape of what it belongs to."""

    x: Any
    initial_states: tuple[Any, ...]
    weights: dict[str, Any]


class Sequence:
    """A cell and the arrays it runs over, checked.

    All arrays are C-contiguous NumPy arrays of the dtype of `x`, float32 or
    float64, and are neither copied nor changed; `Sequence` keeps them alive
    and reads them at every call.

        lstm        [i f g o] = N(h R) + N(x W) + bias
                    c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
                    h' = sigmoid(o) * tanh(N(c'))
        gru         [z r] = N(h R_zr) + rb_zr + N(x W_zr) + bias_zr
                    g  = tanh(N(x W_h) + bias_h
                              + sigmoid(r) * (N(h R_h) + rb_h))
                    h' = (1 - sigmoid(z)) * h + sigmoid(z) * g
        simple_rnn  h' = tanh(N(x W + h R + bias))

    `N(a) = gamma * (a - mean(a)) * scale + beta` with the statistics of one
    row, `scale = 1 / sqrt(variance + epsilon)`, or 1 in a row without
    variance; where there is no gamma, `N(a) = a`. The gates z and r of the
    GRU are normalised together, its candidate by itself. rb is the recurrent
    bias.
    """

    def __init__(
        self,
        cell: str,
        x: Any,
        initial_states: Any,
        weights: dict[str, Any],
        *,
        epsilon: float = 1e-5,
        mask: Any = None,
        input_mask: Any = None,
        recurrent_mask: Any = None,
        go_backwards: bool = False,
        carry_normalized_state: bool = False,
        threads: int = 1,
    ):
        """Checks the arguments.

        Args:
            cell: "lstm", "gru" or "simple_rnn".
            x: inputs (B, T, D).
            initial_states: h (B, U), and c (B, U) in an LSTM, in a tuple, each
                or None for zeros; or None.
            weights: kernel (D, nU), recurrent_kernel (U, nU) and any of the
                vectors that CELLS names: columns stand in the order i, f, g, o
                (LSTM) and z, r, g (GRU).
            epsilon: > 0, inside the square root.
            mask: bool or uint8 (B, T): where it is 0 the states stay, and the
                output is the h that is carried.
            input_mask: dropout mask (B, D) that x is multiplied with.
            recurrent_mask: dropout mask (B, U) that h is multiplied with on
                its way into the product.
            go_backwards: visit the last step first.
            carry_normalized_state: in an LSTM, whether the next step gets
                N(c'); needs state_gamma.
            threads: how many may work on it. No result depends on it.

        Raises:
            TypeError: for what is no array.
            ValueError: for a wrong shape, dtype, layout or value, which the
                message names.
            RuntimeError: where there are no kernels for this machine.
        """
        if cell not in CELLS:
            names = ", ".join(f'"{name}"' for name in CELLS)
            raise ValueError(f"cell: expected one of {names}. Got: {cell!r}.")
        self._library = load()
        self._cell = CELLS[cell]
        if not isinstance(x, np.ndarray):
            raise TypeError(
                f"x: expected a NumPy array. Received: {type(x).__name__}."
            )
        if x.ndim != 3 or 0 in x.shape:
            raise ValueError(
                "x: expected an array (B, T, D) that is not empty. "
                f"Received: shape {x.shape}."
            )
        # Whatever x is, the others are compared with it.
        self._dtype = (x.dtype,) if x.dtype in _DTYPES else _DTYPES
        batch, steps, features = x.shape
        units = _units(weights)
        self._shape = (batch, steps, units)
        width = self._cell.gates * units
        self._shapes = {
            "kernel": (features, width),
            "recurrent_kernel": (units, width),
        } | {
            name: (count * units,)
            for name, (count, _) in self._cell.vectors.items()
        }
        # Keeps alive what the struct points to.
        self._arrays: list[Any] = []
        self._problem = Problem(
            abi_version=ABI_VERSION,
            struct_bytes=ctypes.sizeof(Problem),
            cell=self._cell.number,
            dtype=_DTYPES.index(x.dtype) if x.dtype in _DTYPES else -1,
            go_backwards=bool(go_backwards),
            carry_normalized_state=bool(carry_normalized_state),
            batch=batch,
            steps=steps,
            features=features,
            units=units,
            epsilon=_number("epsilon", epsilon),
            threads=_count("threads", threads),
            x=self._input("x", x, x.shape),
            mask=self._input("mask", mask, (batch, steps), _MASKS),
            input_mask=self._input("input_mask", input_mask, (batch, features)),
            recurrent_mask=self._input(
                "recurrent_mask", recurrent_mask, (batch, units)
            ),
        )
        self._add_weights(weights)
        states = self._per_state("initial_states", initial_states)
        for name, state in states.items():
            where = self._input(
                f"initial_states ({name})", state, (batch, units)
            )
            setattr(self._problem, f"initial_{name}", where)
        self._weight_names = tuple(weights)
        self.residual_bytes = self._library.kln_residual_bytes(self._problem)
        if self.residual_bytes < 0:
            # The reason is what a call would say.
            self._check(self._library.kln_forward(self._problem, Forward()))

    def forward(
        self,
        *,
        training: bool = False,
        return_outputs: bool = True,
        outputs: Any = None,
        final_states: Any = None,
        residuals: Any = None,
    ) -> Result:
        """Runs the cell over the sequences.

        Args:
            training: whether to keep what `backward` needs.
            return_outputs: whether to return h after every step.
            outputs: array (B, T, U) to write to; None for a new one.
            final_states: arrays (B, U) to write to, in a tuple; None for new
                ones. They may be those of the initial states.
            residuals: uint8 array (residual_bytes,) to write to; None for a
                new one. Only with `training`.

        Returns:
            See `Result`.

        Raises:
            TypeError: for what is no array.
            ValueError: for a wrong shape, dtype or layout.
        """
        batch, _, units = self._shape
        if not return_outputs:
            _refuse("outputs", outputs, "return_outputs")
        if not training:
            _refuse("residuals", residuals, "training")
        if return_outputs and outputs is None:
            outputs = self._new(self._shape)
        if training and residuals is None:
            residuals = np.empty(self.residual_bytes, np.uint8)
        if final_states is None:
            final_states = [
                self._new((batch, units)) for _ in self._cell.states
            ]
        finals = self._per_state("final_states", final_states)
        arguments = Forward(
            outputs=self._output("outputs", outputs, self._shape),
            residuals=self._output(
                "residuals", residuals, (self.residual_bytes,), _BYTES
            ),
            residual_bytes=self.residual_bytes,
        )
        for name, state in finals.items():
            if state is None:
                raise TypeError(f"final_states ({name}): expected an array.")
            where = self._output(
                f"final_states ({name})", state, (batch, units)
            )
            setattr(arguments, f"final_{name}", where)
        self._check(self._library.kln_forward(self._problem, arguments))
        return Result(outputs, tuple(finals.values()), residuals)

    def backward(
        self,
        residuals: Any,
        *,
        d_outputs: Any = None,
        d_final_states: Any = None,
        d_x: Any = None,
        d_initial_states: Any = None,
        d_weights: dict[str, Any] | None = None,
        needs_x: bool = True,
    ) -> Gradients:
        """Gradients of sum(d_outputs * outputs) + sum(d_final * final).

        Args:
            residuals: what `forward` with `training` left.
            d_outputs: array (B, T, U), in the order of visits; None for
                zeros.
            d_final_states: arrays (B, U) in a tuple, each or None for zeros;
                or None.
            d_x: array (B, T, D) to write to; None for a new one.
            d_initial_states: arrays (B, U) to write to, in a tuple; None for
                new ones.
            d_weights: arrays to write to by the weights' names; None for new
                ones.
            needs_x: whether the gradient of x is wanted.

        Returns:
            See `Gradients`; x is None without `needs_x`. The dropout masks are
            constants.

        Raises:
            TypeError: for what is no array.
            ValueError: for a wrong shape, dtype or layout, or residuals that
                another problem left.
        """
        batch, steps, units = self._shape
        x_shape = (batch, steps, self._problem.features)
        if not needs_x:
            _refuse("d_x", d_x, "needs_x")
        elif d_x is None:
            d_x = self._new(x_shape)
        if d_initial_states is None:
            d_initial_states = [
                self._new((batch, units)) for _ in self._cell.states
            ]
        if d_weights is None:
            d_weights = {
                name: self._new(self._shapes[name])
                for name in self._weight_names
            }
        elif set(d_weights) != set(self._weight_names):
            raise ValueError(
                "d_weights: expected the names "
                f"{', '.join(self._weight_names)}. "
                f"Received: {', '.join(d_weights)}."
            )
        d_initial = self._per_state("d_initial_states", d_initial_states)
        d_final = self._per_state("d_final_states", d_final_states)
        if residuals is None:
            raise TypeError("residuals: expected an array. Received: None.")
        arguments = Backward(
            residuals=self._checked(
                "residuals", residuals, (self.residual_bytes,), _BYTES
            ),
            residual_bytes=self.residual_bytes,
            d_outputs=self._checked("d_outputs", d_outputs, self._shape),
            d_x=self._output("d_x", d_x, x_shape),
        )
        for name in self._cell.states:
            for kind, arrays, written in (
                ("final", d_final, False),
                ("initial", d_initial, True),
            ):
                where = self._checked(
                    f"d_{kind}_states ({name})",
                    arrays[name],
                    (batch, units),
                    written=written,
                )
                setattr(arguments, f"d_{kind}_{name}", where)
        for name, array in d_weights.items():
            where = self._output(
                f"d_weights[{name!r}]", array, self._shapes[name]
            )
            setattr(arguments, f"d_{self._name_in_c(name)}", where)
        self._check(self._library.kln_backward(self._problem, arguments))
        return Gradients(d_x, tuple(d_initial.values()), d_weights)

    def _add_weights(self, weights: dict[str, Any]) -> None:
        unknown = set(weights) - set(self._shapes)
        if unknown:
            raise ValueError(
                f"weights: expected names of {', '.join(self._shapes)}. "
                f"Received: {', '.join(sorted(unknown))}."
            )
        for name, array in weights.items():
            label = f"weights[{name!r}]"
            if array is None:
                raise TypeError(f"{label}: expected an array. Received: None.")
            where = self._input(label, array, self._shapes[name])
            setattr(self._problem, self._name_in_c(name), where)

    def _name_in_c(self, weight: str) -> str:
        return self._cell.vectors.get(weight, (0, weight))[1]

    def _per_state(self, name: str, arrays: Any) -> dict[str, Any]:
        """The arrays by the names of the states; None for each of them."""
        states = self._cell.states
        if arrays is None:
            return dict.fromkeys(states)
        if not isinstance(arrays, tuple | list) or len(arrays) != len(states):
            raise ValueError(
                f"{name}: expected a tuple of {', '.join(states)}. "
                f"Received: {type(arrays).__name__}"
                + (f" of {len(arrays)}." if hasattr(arrays, "__len__") else ".")
            )
        return dict(zip(states, arrays, strict=True))

    def _new(self, shape: tuple[int, ...]) -> Any:
        return np.empty(shape, self._dtype[0])

    def _input(
        self,
        name: str,
        array: Any,
        shape: tuple[int, ...],
        dtypes: tuple[Any, ...] | None = None,
    ) -> int | None:
        """The address of an array that later calls read, or None."""
        self._arrays.append(array)
        return self._checked(name, array, shape, dtypes)

    def _output(
        self,
        name: str,
        array: Any,
        shape: tuple[int, ...],
        dtypes: tuple[Any, ...] | None = None,
    ) -> int | None:
        return self._checked(name, array, shape, dtypes, written=True)

    def _checked(
        self,
        name: str,
        array: Any,
        shape: tuple[int, ...],
        dtypes: tuple[Any, ...] | None = None,
        *,
        written: bool = False,
    ) -> int | None:
        if array is None:
            return None
        dtypes = self._dtype if dtypes is None else dtypes
        return address(name, array, shape, dtypes, written=written)

    def _check(self, wrong: bytes | None) -> None:
        if wrong is not None:
            raise ValueError(f"{wrong.decode()}.")


def _units(weights: dict[str, Any]) -> int:
    """U, from the recurrent kernel, whose shape is checked later."""
    for name in ("kernel", "recurrent_kernel"):
        if name not in weights:
            raise ValueError(f"weights: there is no {name!r}.")
    shape = getattr(weights["recurrent_kernel"], "shape", ())
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            "weights['recurrent_kernel']: expected an array (U, nU) that is "
            f"not empty. Received: shape {shape}."
        )
    return shape[0]


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected a number. Received: {value!r}.")
    return value


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"{name}: expected a positive integer. Received: {value!r}."
        )
    # More than there can be of anything.
    return min(value, 1 << 20)


def _refuse(name: str, value: Any, without: str) -> None:
    if value is not None:
        raise ValueError(f"{name}: given, but {without} is False.")
