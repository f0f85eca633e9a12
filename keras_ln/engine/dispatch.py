"""The one door of recurrences: what runs, and which implementation runs it.

Letters: B batch, T time, D input features, U units.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_ln import backend
from keras_ln.engine import arguments, dtypes
from keras_ln.engine.arrays import (
    ARGUMENTS_OF_STATES,
    ARRAYS,
    FIRST,
    MATRICES,
)
from keras_ln.engine.bind import once_they_fit, sizes_are_unknown
from keras_ln.engine.cpu import NATIVE
from keras_ln.engine.gpu import CUDA
from keras_ln.engine.implementations import (
    FUSED,
    LOOP,
    Implementation,
    no_equations_by_hand,
)
from keras_ln.engine.portable import program
from keras_ln.engine.scan import Tensors
from keras_ln.engine.spec import How, Spec

# In order of preference. CONTRIBUTING.md says how to add one.
IMPLEMENTATIONS: dict[str, Implementation] = {
    "native": NATIVE,
    "cuda": CUDA,
    "fused": FUSED,
    "loop": LOOP,
}


class _Prepared(NamedTuple):
    """Knowledge of all runs with equal shapes, dtypes and devices."""

    spec: Spec  # with its dtypes
    # Names of arrays, and the dtypes that they get.
    casts: tuple[tuple[str, str], ...]
    # States with one row for all, or perhaps so.
    one_row: tuple[str, ...]
    # Arrays with sizes that are known, or those of the sequences are, only when
    # the program runs.
    unknown: tuple[str, ...]
    # Why an implementation cannot run them, of those that were asked.
    refusals: dict[str, str | None]


# By spec, how, shapes and dtypes.
_prepared: dict[Any, _Prepared] = {}
_MOST_PREPARED = 10_000  # the lengths and batch sizes of a long training


def run(spec: Spec, arrays: Tensors, how: How) -> Tensors:
    """The cell over time, by the first implementation that can run it.

    Computation and vectors are float64 if any of the arrays is, else float32.

    Args:
        spec: what is computed; its dtypes become those of the arrays.
        arrays: tensors by the names in `arrays.py` and of the weights. States
            may have one row for all.
        how: see there.

    Returns:
        What `scan.forward` gives, and `last_output` (B, U). It and `outputs`,
        the last one alone (B, 1, U) where no others are asked for, are in the
        dtype of the sequences.

    Raises:
        ValueError: for arrays that do not fit, and where no implementation
            can run them.
    """
    how = how._replace(program=program(arrays))
    prepared = _prepare(spec, arrays, how)
    spec = prepared.spec
    if prepared.casts:
        casts = {n: backend.cast(arrays[n], to) for n, to in prepared.casts}
        arrays = arrays | casts
    if prepared.unknown and how.program.plain is None:
        arrays = arrays | {
            "x": once_they_fit(arrays, prepared.unknown, how.owner)
        }
    if prepared.one_row:
        units = arrays["recurrent_kernel"].shape[0]
        shape = keras.ops.shape(arrays["x"])[0], units
        arrays = arrays | {
            name: keras.ops.broadcast_to(arrays[name], shape)
            for name in prepared.one_row
        }
    if "mask" in arrays:
        # Whatever stands at masked steps is multiplied by zero in the kernel's
        # gradient, and zero times NaN is NaN.
        valid = arrays["mask"][..., None]
        arrays = arrays | {"x": backend.where(valid, arrays["x"], 0.0)}
    name = _chosen(spec, arrays, how, prepared.refusals)
    if name is None:
        raise _nothing_runs(spec, arrays, how)
    made = IMPLEMENTATIONS[name].run(spec, arrays, how)
    last_output = backend.cast(made["final_h"], spec.dtype)
    made["last_output"] = last_output
    if not spec.return_all_outputs:
        made["outputs"] = last_output[:, None]
    zeros = how.zero_output_for_mask or how.zero_before_valid
    if zeros and "mask" in arrays:
        mask = arrays["mask"]
        if spec.go_backwards:
            mask = keras.ops.flip(mask, axis=1)
        if not how.zero_output_for_mask:
            mask = keras.ops.cumsum(keras.ops.cast(mask, "int32"), axis=1) > 0
        _zero_where_masked(made, mask, spec)
    return made


def _zero_where_masked(made: Tensors, mask: Any, spec: Spec) -> None:
    """Puts zeros into both outputs at the visits that the mask leaves out."""
    last = mask[:, -1:]
    all_steps = (mask if spec.return_all_outputs else last)[..., None]
    for name, valid in (("last_output", last), ("outputs", all_steps)):
        zeros = keras.ops.zeros_like(made[name])
        made[name] = keras.ops.where(valid, made[name], zeros)


def _prepare(spec: Spec, arrays: Tensors, how: How) -> _Prepared:
    # torch.compile would guard every value that is read here, torch's tracers
    # have tensors and symbols for sizes, and a cell that is overridden and an
    # activation of one's own would live as long as the table.
    if (
        how.program.reader is not None
        or how.program.plain is not None
        or how.overridden is not None
        or spec.activation.derivative is None
        or spec.recurrent_activation.derivative is None
        or not all(n is None or type(n) is int for n in arrays["x"].shape)
    ):
        return _newly_prepared(spec, arrays, how)
    kinds = [(n, type(a), tuple(a.shape), a.dtype) for n, a in arrays.items()]
    key = (spec, how, *kinds)
    # One look-up: another thread may clear the table. AutoGraph reads no
    # assignment inside of an expression (2.21).
    prepared = _prepared.get(key)
    if prepared is None:
        prepared = _newly_prepared(spec, arrays, how)
        if len(_prepared) >= _MOST_PREPARED:
            _prepared.clear()
        _prepared[key] = prepared
    return prepared


def _newly_prepared(spec: Spec, arrays: Tensors, how: How) -> _Prepared:
    rows = arrays["x"].shape[0]
    units = arrays["recurrent_kernel"].shape[0]
    check(spec, arrays, how, units)
    names = {name: dtypes.name_of(a.dtype) for name, a in arrays.items()}
    # What the arrays are to be, first by their caller.
    wanted = {n: to for n, to in how.dtypes if n in names}
    floating = {**names, **wanted}.values()
    wide = "float64" if "float64" in floating else "float32"
    # Where there are choices, these say what stays.
    h, c = spec.zoneout_share, spec.cell_zoneout_share
    spec = spec._replace(
        dtype=names["x"],
        wide=wide,
        zoneout_share=0.0 if "zoneout" in names else h,
        cell_zoneout_share=0.0 if "cell_zoneout" in names else c,
    )
    for name in names:
        if name in MATRICES:
            wanted[name] = spec.dtype
        elif name not in ARRAYS or ARRAYS[name].wide:
            wanted[name] = wide
        elif name in FIRST:
            first = FIRST[name]
            wanted[name] = wanted.get(first, names[first])
    return _Prepared(
        spec,
        # Variables of TensorFlow are read once, and not at every step.
        tuple(
            (n, wanted.get(n, dtype))
            for n, dtype in names.items()
            if wanted.get(n, dtype) != dtype or hasattr(arrays[n], "assign")
        ),
        tuple(
            name
            for name in names
            if name.startswith(("initial_", "reset_"))
            and (
                arrays[name].shape[0] is None
                or (arrays[name].shape[0], rows) == (1, rows) != (1, 1)
            )
        ),
        tuple(n for n in names if sizes_are_unknown(n, arrays, units)),
        {},
    )


def check(spec: Spec, arrays: Mapping[str, Any], how: How, units: int) -> None:
    """`ValueError` unless the arrays fit each other, symbolic or not.

    Arrays that come from `array` do.
    """
    x = arrays["x"]
    if x.shape[1] == 0:
        arguments.check_steps("sequences", x.shape)
    if how.unroll and x.shape[1] is None:
        raise ValueError(
            "Argument `unroll` must be False if the number of time steps is "
            "unknown. Received: unroll=True and sequences of shape "
            f"{tuple(x.shape)}"
        )
    # The states of resets may be the initial ones too.
    first = arrays.get("initial_h")
    both = first is not None and first is arrays.get("reset_h")
    for argument, prefix in list(ARGUMENTS_OF_STATES.items())[both:]:
        names = [f"{prefix}_{name}" for name in spec.cell.state_names]
        states = [arrays[name] for name in names if name in arrays]
        if states:
            check_states(how.owner, argument, states, names, x, units)


def check_states(
    owner: str,
    argument: str,
    states: Sequence[Any],
    names: Sequence[str],
    x: Any,
    units: int,
) -> None:
    """`ValueError` unless these are the states of that argument, (B, U).

    One row (1, U) is used for the whole batch.
    """
    batch = x.shape[0]
    shapes = [tuple(np.shape(state)) for state in states]
    if len(shapes) != len(names) or not all(
        len(shape) == 2
        # A set would not find equal sizes of torch.jit, which are tensors.
        and (batch is None or any(shape[0] == n for n in (1, batch, None)))
        and (shape[1] == units or shape[1] is None)
        for shape in shapes
    ):
        raise ValueError(
            f"Argument `{argument}` of {owner} must be "
            f"{arguments.tensors(len(names))} of shape (batch, units), here "
            f"{(batch, units)}. Received: shapes {shapes}"
        )
    for state in states:
        if "float" not in str(state.dtype):
            arguments.check_numbers(argument, state.dtype)


def _chosen(
    spec: Spec,
    arrays: Mapping[str, Any],
    how: How,
    refusals: dict[str, str | None],
) -> str | None:
    """The name of the implementation that runs, or None if none can.

    Why one refuses is added to `refusals`, and not asked again.
    """
    for name, row in IMPLEMENTATIONS.items():
        if row.by_hand and how.program.plain is not None:
            continue
        unavailable = row.unavailable
        if unavailable is not None and unavailable(how.program) is not None:
            continue
        if name not in refusals:
            refusals[name] = row.refusal(name, spec, arrays, how)
        if refusals[name] is None:
            return name
    return None


def chosen(spec: Spec, how: How) -> str | None:
    """The name of what would run, or None if nothing can."""
    return _chosen(spec, {}, how._replace(program=program()), {})


def choose(spec: Spec, how: How) -> tuple[str, dict[str, str]]:
    """The name of what would run, and why the others would not.

    Raises:
        ValueError: if nothing can run.
    """
    known = program()
    how = how._replace(program=known)
    chosen = _chosen(spec, {}, how, {})
    if chosen is None:
        raise _nothing_runs(spec, {}, how)
    return chosen, {
        name: (row.by_hand and (known.plain or no_equations_by_hand(spec, how)))
        or (row.reason and row.reason(spec, {}, how))
        or (row.unavailable and row.unavailable(known))
        or row.refusal(name, spec, {}, how)
        or f"{chosen} comes before it, and can."
        for name, row in IMPLEMENTATIONS.items()
        if name != chosen
    }


def _reason_of_fused(spec: Spec, how: How) -> str | None:
    """Why there is no gradient by hand here and now, or None."""
    known, row = program(), IMPLEMENTATIONS["fused"]
    wrong = known.reader or known.plain
    return wrong or row.refusal("fused", spec, {}, how)


def _nothing_runs(
    spec: Spec, arrays: Mapping[str, Any], how: How
) -> ValueError:
    without_gradient = how._replace(use_fused="auto")
    row = IMPLEMENTATIONS["loop"]
    loop = row.refusal("loop", spec, arrays, without_gradient)
    if loop is not None:
        return ValueError(loop)
    reason = _reason_of_fused(spec, how)
    return ValueError(
        f"use_fused=True, but {how.owner} cannot run as one fused op: "
        f'{reason} Use use_fused="auto" to fall back to the cell loop.'
    )


def implementation(layer: Any) -> tuple[str, dict[str, str]]:
    """Which implementation a recurrent layer would run, and why not others.

    - "native": one call of C++ per sequence and one for its gradient, on a CPU
      if the package keras-ln-kernels is installed.
    - "cuda": one launch on a GPU per sequence and one for its gradient, on JAX
      and torch, if KERAS_LN_KERNELS=cuda switches it on. The layers' tests have
      not passed on a GPU yet.
    - "fused": one op per sequence with a hand-written gradient, which XLA
      compiles on TensorFlow and JAX.
    - "loop": the cell's step over time, differentiated by the framework.

    `use_fused`, `unroll`, activations and overridden methods of the layer
    decide, `portable()`, whether torch.compile reads the program, and forward
    mode. Inside a `tf.autodiff.ForwardAccumulator`, `torch.func.jvp` or
    `jacfwd` the answer is "loop"; on TensorFlow, layers whose tensors the
    accumulator does not follow run as they do elsewhere. JAX does not tell its
    forward mode, which needs `use_fused=False`.

    Args:
        layer: a recurrent layer of keras_ln, built or not.

    Returns:
        `(name, {other: reason})`: the name, and for each of the others a
        sentence that says what stands in the way.

    Raises:
        ValueError: if the layer is another one, or nothing can run it as it
            asks for, for example with `use_fused=True` inside `portable()`.

    >>> from keras_ln import LNLSTM, ops
    >>> name, reasons = ops.implementation(LNLSTM(4, activation="relu"))
    >>> name, reasons["loop"]
    ('fused', 'fused comes before it, and can.')
    >>> name, reasons = ops.implementation(LNLSTM(4, unroll=True))
    >>> print(name, "because", reasons["fused"])
    loop because unroll=True asks for an unrolled loop over time.
    """
    if (reason := _not_ours(layer)) is not None:
        raise ValueError(
            f"Argument `layer` must be a recurrent layer. {reason}"
        )
    return choose(*layer.as_problem())


def unsupported_reason(layer: Any) -> str | None:
    """Why `layer` cannot run as one fused op per sequence.

    Args:
        layer: a recurrent layer of keras_ln.

    Returns:
        None if it can, else a sentence that says what stands in the way.
    """
    if (reason := _not_ours(layer)) is not None:
        return reason
    spec, how = layer.as_problem()
    return _reason_of_fused(spec, how._replace(use_fused="auto"))


def _not_ours(layer: Any) -> str | None:
    if hasattr(layer, "as_problem"):
        return None
    return (
        f"Only recurrent layers of keras_ln have a fused op. Received: "
        f"{type(layer).__name__}."
    )
