"""A recurrent cell over sequences, forward and backward.

Letters: B batch, T steps, D features of the inputs, U units, n gates.
"""

import ctypes
from typing import Any, NamedTuple

import numpy as np

from keras_ln_kernels import checks
from keras_ln_kernels.cells import CELLS
from keras_ln_kernels.library import ABI_VERSION, Backward, Forward, Problem
from keras_ln_kernels.library import library as load

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

    Zoneout comes after these: of the new states a part is what it was before.
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
        zoneout: Any = None,
        cell_zoneout: Any = None,
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
            zoneout: what stays of h: a share in [0, 1), or a bool or uint8
                array (B, T, U) that is 1 where a unit keeps it.
            cell_zoneout: in an LSTM, that of c.
            threads: how many may work on it. No result depends on it.

        Raises:
            TypeError: for what is no array.
            ValueError: for a wrong shape, dtype, layout or value, which the
                message names.
            RuntimeError: where there are no kernels for this machine.
        """
        if cell not in CELLS:
            names = ", ".join(f'"{name}"' for name in CELLS)
            raise ValueError(
                f"cell: expected one of {names}. Received: {cell!r}."
            )
        self._library = load()
        self._cell = CELLS[cell]
        checks.not_empty("x", x, 3, "(B, T, D)")
        for name in ("kernel", "recurrent_kernel"):
            if name not in weights:
                raise ValueError(f"weights: there is no {name!r}.")
        recurrent = weights["recurrent_kernel"]
        checks.not_empty("weights['recurrent_kernel']", recurrent, 2, "(U, nU)")
        batch, steps, features = x.shape
        units = recurrent.shape[0]
        self._dtypes = (x.dtype,) if x.dtype in _DTYPES else _DTYPES
        self._x_shape = x.shape
        self._outputs_shape = (batch, steps, units)
        self._state_shape = (batch, units)
        self._shapes = self._cell.shapes(features, units)
        # Keeps alive what the struct points to.
        self._arrays = (x, mask, input_mask, recurrent_mask)
        self._arrays += (zoneout, cell_zoneout)
        self._arrays += (initial_states, *weights.values())
        self._problem = Problem(
            abi_version=ABI_VERSION,
            struct_bytes=ctypes.sizeof(Problem),
            cell=self._cell.number,
            go_backwards=bool(go_backwards),
            carry_normalized_state=bool(carry_normalized_state),
            batch=batch,
            steps=steps,
            features=features,
            units=units,
            epsilon=checks.number("epsilon", epsilon),
            threads=checks.count("threads", threads),
            x=self._address("x", x, x.shape),
            dtype=_DTYPES.index(x.dtype),
            mask=self._address("mask", mask, (batch, steps), _MASKS),
            input_mask=self._address(
                "input_mask", input_mask, (batch, features)
            ),
            recurrent_mask=self._address(
                "recurrent_mask", recurrent_mask, (batch, units)
            ),
        )
        for name, stays in (
            ("zoneout", zoneout),
            ("cell_zoneout", cell_zoneout),
        ):
            if isinstance(stays, np.ndarray):
                shape = self._outputs_shape
                place = checks.address(name, stays, shape, _MASKS)
                setattr(self._problem, name, place)
            elif stays is not None:
                share = checks.number(name, stays)
                setattr(self._problem, f"{name}_share", share)
        self._put_states(
            self._problem, "initial_{}", "initial_states", initial_states
        )
        unknown = sorted(set(weights) - set(self._shapes))
        if unknown:
            raise ValueError(
                f"weights: expected names of {', '.join(self._shapes)}. "
                f"Received: {', '.join(unknown)}."
            )
        self._weight_names = tuple(weights)
        self._put_weights(self._problem, "{}", "weights", weights)
        self.residual_bytes = self._library.kln_residual_bytes(self._problem)
        if self.residual_bytes < 0:
            # A call would say why.
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
        if not return_outputs:
            checks.absent("outputs", outputs, "return_outputs")
        elif outputs is None:
            outputs = self._new(self._outputs_shape)
        if not training:
            checks.absent("residuals", residuals, "training")
        elif residuals is None:
            residuals = np.empty(self.residual_bytes, np.uint8)
        if final_states is None:
            final_states = self._new_states()
        arguments = Forward(
            outputs=self._address(
                "outputs", outputs, self._outputs_shape, written=True
            ),
            residuals=self._address(
                "residuals",
                residuals,
                (self.residual_bytes,),
                _BYTES,
                written=True,
            ),
            residual_bytes=self.residual_bytes,
        )
        self._put_states(
            arguments, "final_{}", "final_states", final_states, written=True
        )
        self._check(self._library.kln_forward(self._problem, arguments))
        return Result(outputs, tuple(final_states), residuals)

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
        if not needs_x:
            checks.absent("d_x", d_x, "needs_x")
        elif d_x is None:
            d_x = self._new(self._x_shape)
        if d_initial_states is None:
            d_initial_states = self._new_states()
        names = self._weight_names
        if d_weights is None:
            d_weights = {name: self._new(self._shapes[name]) for name in names}
        elif set(d_weights) != set(names):
            raise ValueError(
                f"d_weights: expected the names {', '.join(names)}. "
                f"Received: {', '.join(d_weights)}."
            )
        arguments = Backward(
            residuals=checks.address(
                "residuals", residuals, (self.residual_bytes,), _BYTES
            ),
            residual_bytes=self.residual_bytes,
            d_outputs=self._address(
                "d_outputs", d_outputs, self._outputs_shape
            ),
            d_x=self._address("d_x", d_x, self._x_shape, written=True),
        )
        self._put_states(
            arguments, "d_final_{}", "d_final_states", d_final_states
        )
        self._put_states(
            arguments,
            "d_initial_{}",
            "d_initial_states",
            d_initial_states,
            written=True,
        )
        self._put_weights(
            arguments, "d_{}", "d_weights", d_weights, written=True
        )
        self._check(self._library.kln_backward(self._problem, arguments))
        return Gradients(d_x, tuple(d_initial_states), d_weights)

    def _put_states(
        self,
        struct: Any,
        field: str,
        name: str,
        arrays: Any,
        *,
        written: bool = False,
    ) -> None:
        """Enters arrays (B, U); None stands for zeros where it is read."""
        if arrays is None and not written:
            return
        states = checks.by_state(name, arrays, self._cell.states)
        for state, array in states.items():
            if array is None and not written:
                continue
            place = checks.address(
                f"{name} ({state})",
                array,
                self._state_shape,
                self._dtypes,
                written=written,
            )
            setattr(struct, field.format(state), place)

    def _put_weights(
        self,
        struct: Any,
        field: str,
        name: str,
        arrays: dict[str, Any],
        *,
        written: bool = False,
    ) -> None:
        for weight, array in arrays.items():
            place = checks.address(
                f"{name}[{weight!r}]",
                array,
                self._shapes[weight],
                self._dtypes,
                written=written,
            )
            setattr(struct, field.format(self._cell.name_in_c(weight)), place)

    def _address(
        self,
        name: str,
        array: Any,
        shape: tuple[int, ...],
        dtypes: tuple[Any, ...] | None = None,
        *,
        written: bool = False,
    ) -> int | None:
        """The address of an array that may be absent."""
        if array is None:
            return None
        dtypes = dtypes or self._dtypes
        return checks.address(name, array, shape, dtypes, written=written)

    def _new(self, shape: tuple[int, ...]) -> Any:
        return np.empty(shape, self._dtypes[0])

    def _new_states(self) -> tuple[Any, ...]:
        return tuple(self._new(self._state_shape) for _ in self._cell.states)

    def _check(self, wrong: bytes | None) -> None:
        if wrong is not None:
            raise ValueError(f"{wrong.decode()}.")
