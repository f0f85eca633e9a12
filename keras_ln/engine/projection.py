"""A run with a projection, h = m P_k, as a run without one.

The recurrence gets h R = m (P_k R): it runs with R' = P_k R and carries m, and
h = m P_k is computed for all steps at once. The framework differentiates both.
Letters: B batch, T time, U units, P the size of h.
"""

from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine.scan import forward
from keras_ln.engine.spec import ARRAYS, RunOptions, Spec, Tensors

# What needs the h of every step, by the arrays.
_OF_H = {
    "zoneout": "zoneout of h",
    "recurrent_mask": "dropout of h",
    "reset_h": "`reset_state`",
}


def reason(spec: Spec, arrays: Mapping[str, Any]) -> str | None:
    """Why only the loop runs it, or None.

    There is an `initial_h` only if it was given; otherwise it is zero.
    """
    why = [text for name, text in _OF_H.items() if name in arrays]
    if spec.zoneout_share:
        why.append(_OF_H["zoneout"])
    if "initial_h" in arrays:
        if "mask" in arrays:
            why.append("a mask and an initial h")
        steps = arrays["x"].shape[1]
        if type(steps) is not int or steps == 1:
            why.append("an initial h and one step, or an unknown number,")
    if not why:
        return None
    return f"A projection with {why[0]} needs h at every step."


def unprojected(
    spec: Spec, arrays: Mapping[str, Any]
) -> tuple[Spec, dict[str, Any]]:
    """The run without a projection; its R' has a shape, but no values."""
    named = {n: a for n, a in arrays.items() if n != "projection_kernel"}
    if named:
        matrix = named["recurrent_kernel"]
        shape = arrays["projection_kernel"].shape[0], matrix.shape[1]
        dtype = keras.backend.standardize_dtype(matrix.dtype)
        named["recurrent_kernel"] = keras.KerasTensor(shape, dtype)
    return spec._replace(projection=None), named


def run(
    run_without: Callable[[Spec, Tensors, RunOptions], Tensors],
    spec: Spec,
    arrays: Tensors,
    options: RunOptions,
) -> Tensors:
    """The results of an implementation that knows no projection."""
    spec, named = unprojected(spec, arrays)
    kernel, matrix = arrays["projection_kernel"], arrays["recurrent_kernel"]
    outputs = []
    if "initial_h" in arrays:
        # No m before the first step belongs to it, so this step has R itself.
        at, rest = slice(1), slice(1, None)
        if spec.go_backwards:
            at, rest = slice(-1, None), slice(-1)
        known = [n for n in named if n in ARRAYS]
        steps = [n for n in known if ARRAYS[n].letters.startswith("BT")]
        first = {n: named[n][:, at] for n in steps}
        first = {**named, "recurrent_kernel": matrix, **first}
        results = forward(spec, first, unroll=True)[0]
        named |= {n: named[n][:, rest] for n in steps}
        for name in spec.cell.states:
            named[f"initial_{name}"] = results[f"final_{name}"]
        if spec.return_all_outputs:
            outputs.append(results["outputs"])
    else:
        shape = keras.ops.shape(arrays["x"])[0], kernel.shape[0]
        named["initial_h"] = keras.ops.zeros(shape, spec.dtype)
    named["recurrent_kernel"] = backend.matmul(kernel, matrix)
    results = run_without(spec, named, options)
    if outputs:
        outputs.append(results["outputs"])
        results["outputs"] = keras.ops.concatenate(outputs, axis=1)
    for name in {"outputs", "final_h"} & results.keys():
        m = results[name]
        h = backend.matmul(backend.cast(m, spec.dtype), kernel)
        results[name] = backend.cast(h, m.dtype)
    return results
