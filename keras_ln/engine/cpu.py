"""One call of the CPU extension per sequence, and one for its gradient.

It is C++, the package keras-ln-kernels. Letters: B batch, T time, D input
features, U units.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine.activations import ACTIVATIONS
from keras_ln.engine.dtypes import name_of
from keras_ln.engine.implementations import Implementation, read_by_scans
from keras_ln.engine.scan import forward
from keras_ln.engine.spec import (
    ARRAYS,
    MATRICES,
    Cell,
    RunOptions,
    Spec,
    Tensors,
)
from keras_ln.engine.vjp import vjp

_ACTIVATIONS = {"activation": "tanh", "recurrent_activation": "sigmoid"}
_DTYPES = {"float32", "float64"}
# The gradient packs both matrices. For one step the fused op took 0.16 to 0.6
# of the extension's time at 256 to 1024 units with 1 to 32 rows, and 0.95 to
# 1.7 at 64 and 128 units, or with 128 rows (JAX, two threads, Zen 5).
_FEW_ROWS, _LARGE = 32, 2**18


def _reason(
    spec: Spec, arrays: Mapping[str, Any], options: RunOptions
) -> str | None:
    if spec.cell.native_name is None:
        return f"The CPU extension does not support {options.owner}."
    if spec.groups != "paper" and not spec.summed:
        return f"The CPU extension does not support groups={spec.groups!r}."
    for name, known in _ACTIVATIONS.items():
        if getattr(spec, name) != ACTIVATIONS[known]:
            return f"The CPU extension needs {name}={known!r}."
    received = {spec.dtype, spec.accumulator_dtype}
    for name in arrays:
        if name.startswith("initial_"):
            received.add(name_of(arrays[name].dtype))
    if len(received) > 1 or not received <= _DTYPES:
        return (
            "The CPU extension needs tensors of one dtype, float32 or float64. "
            f"Received: {', '.join(sorted(received))}."
        )
    if not arrays:
        return None
    rows, steps, _ = arrays["x"].shape
    if rows == 0:
        return "The batch is empty."
    if (
        keras.backend.backend() == "jax"
        and options.training
        and (type(rows), steps) == (int, 1)  # Exports have symbols.
        and rows <= _FEW_ROWS
        and sum(math.prod(arrays[n].shape) for n in MATRICES) >= _LARGE
    ):
        return "XLA is faster in training with one step of few rows."
    return None


def _unavailable(context: backend.TraceContext) -> str | None:
    wrong = backend.native_reason()
    if wrong is not None:
        return wrong
    if not context.on_cpu:
        return "The CPU extension runs on CPUs only."
    if keras.distribution.distribution() is not None:
        return "The CPU extension does not support keras.distribution."
    if backend.is_exported():
        return "An exported program runs without the CPU extension."
    return None


def kernels() -> str:
    """The CPU extension's version, or why layers do not use it."""
    wrong = backend.native_reason()
    return backend.native_description() if wrong is None else f"none. {wrong}"


def _run(spec: Spec, arrays: Tensors, options: RunOptions) -> Tensors:
    if options.context.compiler_reason is not None:
        # It would warn of a cache, and look through it.
        return native_forward(spec, arrays, keep=False, describe=_describe)[0]
    run_op = _operation(spec)
    return run_op(arrays, keep=options.training, owner=options.owner)


def _reads(spec: Spec, options: RunOptions) -> set[str]:
    from keras_ln_kernels import call

    names = native_names(spec.cell)
    known = {"activation", "recurrent_activation", "dtype", "accumulator_dtype"}
    known |= {"return_all_outputs", "groups", "summed"}
    known |= {*call.OPTIONS, *call.ARGUMENTS}
    return {n for n in read_by_scans(spec, options) if names.get(n, n) in known}


NATIVE = Implementation(
    _run, _reads, by_hand=True, reason=_reason, unavailable=_unavailable
)


@functools.cache
def _operation(spec: Spec) -> Any:
    return backend.custom_vjp(
        functools.partial(native_forward, spec),
        functools.partial(native_vjp, spec),
        functools.partial(forward, spec),
        reference_backward=functools.partial(vjp, spec),
    )


def native_forward(
    spec: Spec, arrays: Tensors, *, keep: bool, describe: Any = None
) -> tuple[Tensors, Tensors]:
    """Outputs and residuals by name, as `scan.forward` gives them."""
    wanted = {f"final_{name}" for name in spec.cell.states}
    if spec.return_all_outputs:
        wanted.add("outputs")
    if keep:
        wanted.add("residuals")
    results = _call(spec, arrays, wanted, describe or _described)
    if not keep:
        return results, {}
    return results, {**arrays, "residuals": results.pop("residuals")}


def native_vjp(spec: Spec, residuals: Tensors, cotangents: Tensors) -> Tensors:
    """Gradients, by name, of the arrays of `native_forward`."""
    names = native_names(spec.cell)
    wanted = {
        name: f"d_{names.get(name, name)}"
        for name in residuals
        if name != "residuals" and (name not in ARRAYS or ARRAYS[name].learned)
    }
    given = {f"d_{name}": array for name, array in cotangents.items()}
    given |= residuals
    gradients = _call(spec, given, {*wanted.values()}, _described)
    return {name: gradients[given] for name, given in wanted.items()}


def native_names(cell: Cell) -> dict[str, str]:
    """The extension's names of arrays, where they differ."""
    # It calls a site without a name "kernel".
    names = {v.name: f"kernel_{v.name}" for v in cell.vectors if v.site == ""}
    return {**names, "reset": "starts"}


def _call(
    spec: Spec, arrays: Tensors, wanted: set[str], describe: Any
) -> Tensors:
    names = native_names(spec.cell)
    arrays = {names.get(name, name): a for name, a in arrays.items()}
    call = describe(spec, frozenset(arrays), frozenset(wanted))
    return backend.call_native(call, arrays)


def _describe(spec: Spec, given: frozenset[str], wanted: frozenset[str]) -> Any:
    from keras_ln_kernels import call

    known = call.GRADIENTS if "residuals" in given else call.RESULTS
    return call.Call(
        spec.cell.native_name,
        spec.accumulator_dtype,
        tuple(name for name in call.ARGUMENTS if name in given),
        tuple(name for name in known if name in wanted),
        call.options(
            sum_by_gate=spec.groups == "gate",
            # Without those of a newer extension, which are off.
            **{n: getattr(spec, n) for n in call.OPTIONS if n in spec._fields},
        ),
    )


_described = functools.cache(_describe)
