"""One launch on a GPU per sequence, and one for its gradient.

The GPU kernels of keras-ln-kernels get x W of all steps and centred rows of R;
backward they return the gradient of x W. Everything else is computed here, for
all steps at once. Letters: B batch, T time, D input features, U units, n gates,
s segments of gates that share statistics.
"""

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine.activations import ACTIVATIONS
from keras_ln.engine.dtypes import name_of
from keras_ln.engine.implementations import Implementation, read_by_scans
from keras_ln.engine.scan import forward
from keras_ln.engine.spec import MATRICES, RunOptions, Spec, Tensors
from keras_ln.engine.vjp import flat_rows, vjp

_ACTIVATIONS = {"activation": "tanh", "recurrent_activation": "sigmoid"}
_DTYPES = ("float32", "bfloat16", "float16")
# Vectors that are added to x W, and to N(h R) before a gate multiplies it.
_ADDED = {
    "lstm": (("bias", "recurrent_beta"), ()),
    "gru": (("bias",), ("recurrent_bias", "recurrent_beta")),
}
_STATE_VECTORS = ("state_gamma", "state_beta")


def _reason(
    spec: Spec, arrays: Mapping[str, Any], options: RunOptions
) -> str | None:
    cell = spec.cell.native_name
    if cell not in _ADDED:
        return f"The GPU kernels do not support {options.owner}."
    if spec.summed:
        return 'The GPU kernels do not support "sum" in `normalize`.'
    if spec.groups != "paper":
        return f"The GPU kernels do not support groups={spec.groups!r}."
    for name, known in _ACTIVATIONS.items():
        if getattr(spec, name) != ACTIVATIONS[known]:
            return f"The GPU kernels need {name}={known!r}."
    received = {spec.dtype}
    for name in arrays:
        if name.startswith(("initial_", "reset_")):
            received.add(name_of(arrays[name].dtype))
    if spec.accumulator_dtype != "float32" or not received <= {*_DTYPES}:
        return (
            "The GPU kernels compute in float32, on tensors in "
            f"{', '.join(_DTYPES)}. Received: "
            f"{', '.join(sorted({*received, spec.accumulator_dtype}))}."
        )
    if not arrays:
        return None
    for axis, empty in enumerate(("The batch is", "The sequences are")):
        if arrays["x"].shape[axis] == 0:
            return f"{empty} empty."
    units = arrays["recurrent_kernel"].shape[0]
    wanted = cell, units, spec.dtype, options.training
    return backend.gpu_plan_reason(arrays["x"], *wanted)


def _unavailable(context: backend.TraceContext) -> str | None:
    wrong = backend.gpu_reason()
    if wrong is None and backend.is_exported():
        return "An exported program runs without GPU kernels."
    return wrong


def gpu_kernels() -> str:
    """Whether the GPU kernels can be used, or why not."""
    wrong = backend.gpu_reason()
    if wrong is not None:
        return f"none. {wrong}"
    return f"one launch per sequence; {backend.gpu_said()}"


def _reads(spec: Spec, options: RunOptions) -> set[str]:
    known = {"activation", "recurrent_activation", "epsilon", "go_backwards"}
    known |= {"return_all_outputs", "dtype", "accumulator_dtype", "x", "mask"}
    known |= {"input_mask", "reset", *MATRICES, "kernel_gamma", "kernel_beta"}
    known |= {"recurrent_gamma", *_STATE_VECTORS}
    known |= {*itertools.chain(*_ADDED.get(spec.cell.native_name or "", ()))}
    for state in spec.cell.states:
        known |= {f"initial_{state}", f"reset_{state}"}
    return {name for name in read_by_scans(spec, options) if name in known}


def _run(spec: Spec, arrays: Tensors, options: RunOptions) -> Tensors:
    read = options.context.compiler_reason is not None
    spec = spec._replace(fused_norms=options.context.fused_reason is None)
    run_op = (_new_operation if read else _operation)(spec)
    return run_op(arrays, keep=options.training, owner=options.owner)


CUDA = Implementation(
    _run, _reads, by_hand=True, reason=_reason, unavailable=_unavailable
)


def _new_operation(spec: Spec) -> Any:
    plain = spec._replace(fused_norms=False)
    return backend.custom_vjp(
        functools.partial(cuda_forward, spec),
        functools.partial(cuda_vjp, spec),
        functools.partial(forward, plain),
        reference_backward=functools.partial(vjp, plain),
        platform="cuda",
    )


_operation = functools.cache(_new_operation)


def cuda_forward(
    spec: Spec, arrays: Tensors, *, keep: bool
) -> tuple[Tensors, Tensors]:
    """Outputs and residuals by name, as `scan.forward` gives them."""
    states = spec.cell.states
    x_product = backend.matmul(_inputs(arrays), arrays["kernel"])
    wanted = {f"final_{name}" for name in states}
    if keep:
        wanted |= {"h", "from_h", "norms", *states}
    elif spec.return_all_outputs:
        wanted.add("h")
    given = _given(spec, arrays, x_product, _norms(spec, arrays))
    results = _launch(spec, given, wanted, backward=False)
    outputs = {}
    for name in states:
        dtype = name_of(arrays[f"initial_{name}"].dtype)
        outputs[f"final_{name}"] = backend.cast(results[f"final_{name}"], dtype)
    if spec.return_all_outputs:
        outputs["outputs"] = backend.cast(results["h"], spec.dtype)
    if not keep:
        return outputs, {}
    kept: Tensors = {
        n: results[n] for n in ("h", "c", "from_h", "norms") if n in results
    }
    kept |= {"x_product": x_product, "centred": given["recurrent"]}
    return outputs, {**arrays, **kept}


def cuda_vjp(spec: Spec, residuals: Tensors, cotangents: Tensors) -> Tensors:
    """Gradients, by name, of the arrays of `cuda_forward`."""
    cell = spec.cell
    segments = cell.segments[spec.groups]
    norms = _norms(spec, residuals)
    given = _given(spec, residuals, residuals["x_product"], norms)
    given |= {
        n: residuals[n] for n in ("h", "c", "from_h", "norms") if n in residuals
    }
    # Rows of R are centred, which makes rows of h R so.
    from_h = flat_rows(given["from_h"])
    scale = flat_rows(given["norms"][..., : len(segments)])
    factors: Any = None
    if "recurrent_gamma" in residuals:
        factors = (keras.ops.zeros_like(scale), scale)
        given["back"] = _of_means(
            segments, from_h, abs(scale), given["recurrent"], given["h"]
        )
    biases = ("recurrent_bias",)
    recurrent = norms.site("recurrent", from_h, factors, biases)
    if "outputs" in cotangents:
        given["d_h"] = _wide(cotangents["outputs"])
    wanted = {"d_zx", *(f"d_{n}" for n in _STATE_VECTORS if n in residuals)}
    if cell.native_name == "gru":
        wanted.add("d_shown")
    for name in cell.states:
        given[f"d_final_{name}"] = _wide(cotangents[f"final_{name}"])
        starts = (f"initial_{name}", f"reset_{name}")
        wanted |= {f"d_{start}" for start in starts if start in residuals}
    results = _launch(spec, given, wanted, backward=True)
    gradients = _gradients_of_inputs(spec, residuals, norms, results["d_zx"])
    d_total = results["d_zx"]
    if spec.go_backwards:
        d_total = keras.ops.flip(d_total, axis=1)
    if "d_shown" in results:
        of_gates = d_total[..., : 2 * given["h"].shape[-1]]
        d_total = keras.ops.concatenate([of_gates, results["d_shown"]], axis=-1)
    d_total = flat_rows(d_total)
    d_from_h, d_vectors = recurrent.vjp(d_total)
    for name in _STATE_VECTORS:
        if name in residuals:
            d_vectors[name] = backend.sum(results[f"d_{name}"], 0)
    d_vectors["recurrent_kernel"] = _product(
        spec, _h_before(spec, residuals), d_from_h
    )
    d_vectors |= {
        name.removeprefix("d_"): results[name]
        for name in results
        if name.startswith(("d_initial_", "d_reset_"))
    }
    return {
        name: backend.cast(gradient, name_of(residuals[name].dtype))
        for name, gradient in (gradients | d_vectors).items()
    }


def _launch(
    spec: Spec, given: Tensors, wanted: set[str], *, backward: bool
) -> Tensors:
    from keras_ln_kernels import gpu_call

    takes, gives = gpu_call.BACKWARD if backward else gpu_call.FORWARD
    call = gpu_call.GpuCall(
        spec.cell.native_name or "",
        backward,
        spec.dtype,
        tuple(name for name in takes if name in given),
        tuple(name for name in gives if name in wanted),
        tuple(getattr(spec, name) for name in gpu_call.OPTIONS),
    )
    return backend.call_gpu(
        call, {name: given[name] for name in call.arguments}
    )


def _given(spec: Spec, arrays: Tensors, x_product: Any, norms: Any) -> Tensors:
    """The arrays of both kernels by name; `x_product` is x W (B, T, nU)."""
    to_x, to_h = _ADDED[spec.cell.native_name or ""]
    zx = norms.site("kernel", _wide(flat_rows(x_product)), None, to_x).value
    given = {"zx": backend.reshape(zx, keras.ops.shape(x_product))}
    if "centred" in arrays:
        given["recurrent"] = arrays["centred"]
    else:
        matrix = _wide(arrays["recurrent_kernel"])
        if "recurrent_gamma" in arrays:
            matrix, statistics = norms.centred("recurrent", matrix)
            # A row without variance changes no unit of N(h R).
            varies = norms.spread(norms.scale(*statistics, flat=0.0)) > 0.0
            matrix = backend.where(varies, matrix, 0.0)
        given["recurrent"] = matrix
    given |= {
        name: arrays[name]
        for name in ("recurrent_gamma", *_STATE_VECTORS)
        if name in arrays
    }
    if shifts := [arrays[name] for name in to_h if name in arrays]:
        given["recurrent_bias"] = functools.reduce(lambda a, b: a + b, shifts)
    for name in spec.cell.states:
        for start in (f"initial_{name}", f"reset_{name}"):
            if start in arrays:
                given[start] = _wide(arrays[start])
    flags = []
    if "mask" in arrays:
        left_out = keras.ops.logical_not(arrays["mask"])
        flags.append(keras.ops.cast(left_out, "uint8"))
    if "reset" in arrays:
        flags.append(2 * keras.ops.cast(arrays["reset"], "uint8"))
    if flags:
        given["flags"] = functools.reduce(lambda a, b: a + b, flags)
    return given


def _of_means(
    segments: tuple[int, ...], from_h: Any, scale: Any, matrix: Any, h: Any
) -> Any:
    """N(h R) R^T over the width, of each segment: (B, T, sU)."""
    units, parts = h.shape[-1], []
    ends = [units * k for k in itertools.accumulate(segments, initial=0)]
    for k, (start, end) in enumerate(itertools.pairwise(ends)):
        transposed = backend.transpose(matrix[:, start:end])
        # torch's autocast may have made it half as wide.
        part = _wide(backend.matmul(from_h[:, start:end], transposed))
        parts.append(part * (scale[:, k : k + 1] / (end - start)))
    joined = keras.ops.concatenate(parts, axis=-1)
    return backend.reshape(joined, (*keras.ops.shape(h)[:2], joined.shape[-1]))


def _gradients_of_inputs(
    spec: Spec, arrays: Tensors, norms: Any, d_zx: Any
) -> Tensors:
    """Gradients of x, of its kernel, and of the vectors that x W meets."""
    d_zx, factors = flat_rows(d_zx), None
    x_product = _wide(flat_rows(arrays["x_product"]))
    if "kernel_gamma" in arrays:
        factors, x_product = norms.factors_of("kernel", x_product)
    site = norms.site("kernel", x_product, factors, ("bias",))
    d_from_x, gradients = site.vjp(d_zx)
    d_from_x = backend.cast(d_from_x, spec.dtype)
    gradients["kernel"] = _product(spec, _inputs(arrays), d_from_x)
    d_x = backend.matmul(d_from_x, backend.transpose(arrays["kernel"]))
    d_x = backend.reshape(d_x, keras.ops.shape(arrays["x"]))
    if "input_mask" in arrays:
        d_x = d_x * arrays["input_mask"][:, None]
    gradients["x"] = d_x
    return gradients


def _h_before(spec: Spec, residuals: Tensors) -> Any:
    """The h before each step (B, T, U), in the order of the visits."""
    first = _wide(residuals["initial_h"])[:, None]
    before = keras.ops.concatenate([first, residuals["h"][:, :-1]], axis=1)
    if "reset" not in residuals:
        return before
    reset = residuals["reset"]
    if spec.go_backwards:
        reset = keras.ops.flip(reset, axis=1)
    anew = keras.ops.zeros_like(first)
    if "reset_h" in residuals:
        anew = _wide(residuals["reset_h"])[:, None]
    return backend.where(reset[..., None], anew, before)


def _norms(spec: Spec, arrays: Tensors) -> Any:
    weights = {n: arrays[n] for n in spec.cell.weights if n in arrays}
    return spec.norms(weights, spec, None, None, {})


def _inputs(arrays: Tensors) -> Any:
    if "input_mask" not in arrays:
        return arrays["x"]
    return arrays["x"] * arrays["input_mask"][:, None]


def _product(spec: Spec, left: Any, right: Any) -> Any:
    """Sum over rows and steps of outer products, in the matrices' dtype."""
    left, right = (
        backend.cast(flat_rows(x), spec.dtype) for x in (left, right)
    )
    return backend.matmul(backend.transpose(left), right)


def _wide(x: Any) -> Any:
    return backend.cast(x, "float32")
