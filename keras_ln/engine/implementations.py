"""What can run a recurrence, and what it refuses; the two scans."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Set
from typing import Any

from keras_ln import backend
from keras_ln.engine.activations import ACTIVATIONS
from keras_ln.engine.portable import asks_for_unrolled_loops
from keras_ln.engine.scan import forward
from keras_ln.engine.spec import ARRAYS, MATRICES, RunOptions, Spec, Tensors
from keras_ln.engine.vjp import vjp


@dataclasses.dataclass(frozen=True)
class Implementation:
    """One way to run a recurrence.

    It refuses every field of `Spec` that is not at its default, and every
    array, that it does not list: nothing that it does not know of is ignored.
    """

    # `run(spec, arrays, options)`: the results by name, as `scan.forward` gives
    # them.
    run: Callable[[Spec, Tensors, RunOptions], Tensors]
    # `reads(spec, options)`: the fields of `Spec`, the arrays and the weights
    # that it heeds.
    reads: Callable[[Spec, RunOptions], Set[str]]
    # Whether the gradient is written by hand, of the cell's own equations.
    by_hand: bool
    # `reason(spec, arrays, options)`: a sentence on why it cannot run such
    # arrays of such dtypes, or None. It is asked once for equal ones, and
    # without arrays before there are any.
    reason: Callable[[Spec, Mapping[str, Any], RunOptions], str | None] = (
        lambda spec, arrays, options: None
    )
    # A sentence on why it cannot run in that program, or None.
    unavailable: Callable[[backend.TraceContext], str | None] | None = None

    def reason_without_arrays(
        self, spec: Spec, options: RunOptions
    ) -> str | None:
        """Why it cannot run what is asked for with any arrays, or None."""
        if self.by_hand:
            wrong = _no_equations_by_hand(spec, options)
        elif options.use_fused is True:
            wrong = "use_fused=True asks for a hand-written gradient."
        else:
            wrong = None
        return wrong or self.reason(spec, {}, options)

    def refusal(
        self,
        name: str,
        spec: Spec,
        arrays: Mapping[str, Any],
        options: RunOptions,
    ) -> str | None:
        """Why it cannot run such arrays of such dtypes, or None.

        It has to be available. The name is what messages call it.
        """
        wrong = self.reason(spec, arrays, options)
        if wrong is not None:
            return wrong
        usual = Spec(spec.cell)
        asked = [
            field
            for field in Spec._fields
            if getattr(spec, field) != getattr(usual, field)
        ]
        known = self.reads(spec, options)
        unread = [what for what in (*asked, *arrays) if what not in known]
        if not unread:
            return None
        what = "array" if unread[0] in ARRAYS else "setting or weight"
        return (
            f"The implementation {name!r} does not read the {what} "
            f"`{unread[0]}`."
        )


def _no_equations_by_hand(spec: Spec, options: RunOptions) -> str | None:
    """Why there is no gradient by hand of what is asked for, or None."""
    if options.overridden is not None:
        return (
            f"{options.overridden.name} overrides "
            f"{', '.join(options.overridden.methods)}, which the op does not "
            "run."
        )
    if options.unroll:
        return "unroll=True asks for an unrolled loop over time."
    for name in ("activation", "recurrent_activation"):
        activation = getattr(spec, name)
        if activation.vjp is None:
            return (
                f"`{name}` must be one of {', '.join(sorted(ACTIVATIONS))}. "
                f"Received: {name}={activation.function!r}."
            )
    if options.use_fused is False:
        return "use_fused=False asks for the cell loop."
    return None


# What both scans heed beside the weights and the options of a cell; written
# out, so that what is new has to be added, and used.
_READ_BY_SCANS = (
    *("go_backwards", "return_all_outputs", "dtype", "accumulator_dtype"),
    *("x", "mask", "input_mask", "recurrent_mask", "reset"),
)
_READ_OF_STATES = {
    "h": ("initial_h", "reset_h", "zoneout", "zoneout_share"),
    "c": ("initial_c", "reset_c", "cell_zoneout", "cell_zoneout_share"),
}
_READ_OF_STATISTICS = (
    *("kernel_moving_mean", "kernel_moving_variance"),
    *("recurrent_moving_mean", "recurrent_moving_variance"),
    *("state_moving_mean", "state_moving_variance"),
)


def _run_fused(spec: Spec, arrays: Tensors, options: RunOptions) -> Tensors:
    fused = spec.cell.fused_norms is not None
    fused = fused and options.context.fused_reason is None
    results = _run_op(spec, arrays, options, fused)
    if fused and (nans := backend.fused.nans(results.values())):
        # Single operations give NaN where squares overflow, or epsilon is
        # rounded to 0. NaN of the data runs twice too, and what comes of it
        # stays the same to the last bit.
        others = _run_op(spec, arrays, options, fused=False)
        if backend.fused.nans(others.values()) < nans:
            return others
    return results


def _run_op(
    spec: Spec, arrays: Tensors, options: RunOptions, fused: bool
) -> Tensors:
    # On other devices the kernel launches of a step cost more than its
    # arithmetic.
    few = not (fused or options.context.on_cpu or spec.cell.batch_statistics)
    # XLA compiles for one T. Where T is unknown there are probably many, each
    # of which would cost a compilation.
    known = arrays["x"].shape[1] is not None
    spec = spec._replace(recompute_in_backward=few, fused_norms=fused)
    run_op = fused_op(spec, known)
    return run_op(arrays, keep=options.training, owner=options.owner)


@functools.cache
def fused_op(spec: Spec, known: bool) -> Any:
    """Both scans as one op, compiled, the gradient by hand.

    `known` says whether T is.
    """
    values = spec._replace(skip_flat_rows=spec.recompute_in_backward)
    # Second derivatives are those of ordinary operations.
    plain = spec._replace(fused_norms=False)
    return backend.custom_vjp(
        functools.partial(forward, values),
        functools.partial(vjp, spec),
        None if values == plain else functools.partial(forward, plain),
        compiled=known,
        reference_backward=(
            None if spec == plain else functools.partial(vjp, plain)
        ),
    )


def _run_loop(spec: Spec, arrays: Tensors, options: RunOptions) -> Tensors:
    known = arrays["x"].shape[1] is not None
    unroll = options.unroll or (known and asks_for_unrolled_loops())
    return forward(spec, arrays, unroll=unroll, overridden=options.overridden)[
        0
    ]


def _reason_of_loop(
    spec: Spec, arrays: Mapping[str, Any], options: RunOptions
) -> str | None:
    overridden = options.overridden
    if overridden is None:
        return None
    # A step of a Keras cell returns no statistics.
    needs_statistics = spec.cell.batch_statistics
    for method in overridden.methods:
        if needs_statistics or method not in ("project", "step"):
            cell = overridden.name
            return (
                f"{cell} overrides `{method}`, which {options.owner} does not "
                "run: its own loop computes all steps from the cell's weights. "
                f"Use keras.layers.RNN({cell}(...)), which calls the cell at "
                "every step."
            )
    return None


def read_by_scans(spec: Spec, options: RunOptions) -> set[str]:
    """The fields of `Spec`, the arrays and the weights that a cell heeds."""
    cell = spec.cell
    vectors = [vector.name for vector in spec.vectors]
    read = {*_READ_BY_SCANS, *cell.options, *MATRICES, *vectors}
    for name in cell.states:
        read.update(_READ_OF_STATES[name])
    if cell.batch_statistics:
        read.update(_READ_OF_STATISTICS)
    if options.overridden is not None:
        read.update(options.overridden.keras_cell.weight_names)
    return read


def _read_by_loop(spec: Spec, options: RunOptions) -> set[str]:
    projected = {"projection", "projection_kernel"} if spec.projection else ()
    return read_by_scans(spec, options).union(projected)


# One op per sequence: both scans, compiled, the gradient by hand.
FUSED = Implementation(
    _run_fused,
    read_by_scans,
    by_hand=True,
    unavailable=lambda context: context.compiler_reason,
)
# The scan forward alone, differentiated by the framework. It runs what the
# others cannot: any activation, a step that a subclass has overridden, unrolled
# loops, programs of ordinary operations, and forward mode.
LOOP = Implementation(
    _run_loop, _read_by_loop, by_hand=False, reason=_reason_of_loop
)
