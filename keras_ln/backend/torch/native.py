"""Calls of keras-ln-kernels on torch tensors, as operators of torch's."""

import functools
import math
import weakref

import torch
from torch.utils.flop_counter import register_flop_formula

from keras_ln._keras import of_session
from keras_ln.backend import native

# Without it the operators cannot be made.
TOO_OLD = (
    f"torch {torch.__version__} has no torch.library.register_vmap, which "
    "came with torch 2.5."
)
# Bytes that malloc finds faster than `native.Pieces` does.
_SMALL = 2**15
_PLAIN = {torch.Tensor, torch.nn.Parameter}

# Before torch 2.7 nothing tells torch.export from torch.compile.
_is_exporting = getattr(
    torch.compiler, "is_exporting", torch.compiler.is_compiling
)


def is_exported():
    return _is_exporting() or torch.jit.is_tracing()


def call_native(call, arrays):
    if is_eager(arrays.values()):
        return _run(call, arrays)
    operators = torch.ops.keras_ln
    run = operators.backward if call.backward else operators.forward
    results = run(
        *[arrays.get(name) for name in call.takes],
        ",".join(call.results),
        call.cell,
        *call.options,
    )
    made = dict(zip(call.gives, results, strict=True))
    return {name: made[name] for name in call.results}


def is_eager(tensors):
    """Whether nothing of torch's looks on: no transform, no trace, no mode.

    Then there is no need for an operator, which takes 100 us. Tried with torch
    2.13. The older of torch's two vmaps, of `is_grads_batched`, shows only in
    its tensors.
    """
    return (
        not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
        and {*map(type, tensors)} <= _PLAIN
        and not any(map(torch._C._functorch.is_legacy_batchedtensor, tensors))
    )


@native.once
def _make_operators():
    """Makes torch.ops.keras_ln.forward and .backward.

    They take every array that a call can have, or None in its place, and
    return every result that there can be, without elements if it is not
    wanted. Lists of tensors would be simpler, but the older of torch's two
    vmaps, which torch.autograd uses for `is_grads_batched`, takes none.
    """
    if not hasattr(torch.library, "register_vmap"):
        return TOO_OLD
    from keras_ln_kernels import call

    # The gradient formula is for torch.compile. In eager mode `custom_vjp`
    # calls the operators inside an autograd.Function, which records nothing.
    options = [f"{kind} {name}" for name, kind in call.OPTIONS.items()]
    own = (options, _call_of, _run)
    operator("forward", call.FORWARD, *own).register_autograd(
        functools.partial(_backward, call),
        setup_context=functools.partial(_setup_context, call),
    )
    operator("backward", call.BACKWARD, *own).register_autograd(no_backward)
    # Of each matrix the gradient needs two products.
    for name, takes, products in (
        ("forward", call.FORWARD[0], 1),
        ("backward", call.BACKWARD[0], 2),
    ):
        register_flop_formula(getattr(torch.ops.keras_ln, name))(
            functools.partial(_flops, takes, products)
        )


def _flops(takes, products, *shapes, out_shape):
    """As torch counts: of the products with both matrices."""
    given = dict(zip(takes, shapes, strict=False))
    rows, steps, _ = given["x"]
    sizes = sum(math.prod(given[n]) for n in ("kernel", "recurrent_kernel"))
    return 2 * products * rows * steps * sizes


# So that torch.compile does not trace into it.
reason = torch.compiler.assume_constant_result(
    native.reason_with(_make_operators)
)


def operator(name, direction, options, call_of, run):
    """An operator of torch's for calls of one direction.

    `call_of(arrays, results, cell, *options)` is the call on arrays by name,
    and `run(call, arrays)` gives its results by name.
    """
    takes, gives = direction
    # `results` are names, joined by commas.
    given = [f"Tensor? {name}" for name in takes]
    given += ["str results", "str cell", *options]
    made = ", ".join(["Tensor"] * len(gives))
    schema = f"({', '.join(given)}) -> ({made})"

    @torch.library.custom_op(
        f"keras_ln::{name}", mutates_args=(), schema=schema
    )
    def operator(*args):
        call, arrays = _read(takes, args, call_of)
        return _all_of(call, run(call, arrays), arrays)

    @operator.register_fake
    def _(*args):
        call, arrays = _read(takes, args, call_of)
        # Not by `_forms`: symbolic sizes are not hashable.
        sizes = _sizes(call, arrays)
        made = {
            n: new(call, n, call.shape(n, sizes), arrays) for n in call.results
        }
        return _all_of(call, made, arrays)

    @operator.register_vmap
    def _(info, in_dims, *args):
        """One call after the other; each is parallel by itself."""
        rows = [
            operator(
                *[
                    arg if dim is None else arg.select(dim, i)
                    for arg, dim in zip(args, in_dims, strict=True)
                ]
            )
            for i in range(info.batch_size)
        ]
        stacked = tuple(torch.stack(row) for row in zip(*rows, strict=True))
        return stacked, (0,) * len(stacked)

    return operator


def _run(call, arrays):
    """The results by name."""
    from keras_ln_kernels import call as library

    forms = _forms(call, sizes := _sizes(call, arrays))
    arrays = {
        name: _checked(name, array, *forms[name])
        for name, array in arrays.items()
    }
    results = {}
    for name in call.results:
        shape, (dtype, *_) = forms[name]
        if name == "residuals":
            results[name] = _recycled(*shape)
        else:
            results[name] = torch.empty(shape, dtype=dtype, device="cpu")
    places = {name: a.data_ptr() for name, a in (arrays | results).items()}
    library.run(call, places, sizes, torch.get_num_threads(), _openmp())
    return results


@functools.cache
def _openmp():
    """The OpenMP library that torch computes with, or None.

    Its threads look for work for some ms after each of torch's operations, and
    others would have to share the cores with them.
    """
    from keras_ln_kernels.library import openmp_of

    if not torch.backends.openmp.is_available():
        return None
    return openmp_of(torch._C.__file__)


def _read(takes, args, call_of):
    """The call, and the arrays by name."""
    arrays = {
        name: array
        for name, array in zip(takes, args, strict=False)
        if array is not None
    }
    return call_of(arrays, *args[len(takes) :]), arrays


def _call_of(arrays, *options):
    return _call(arrays["x"].dtype, tuple(arrays), *options)


@functools.lru_cache(maxsize=256)
def _call(dtype, arguments, results, cell, *options):
    from keras_ln_kernels import call

    dtype = str(dtype).removeprefix("torch.")
    names = tuple(results.split(","))
    return call.Call(cell, dtype, arguments, names, options)


def _sizes(call, arrays):
    return call.sizes({name: array.shape for name, array in arrays.items()})


@functools.lru_cache(maxsize=1024)
def _forms(call, sizes):
    """The shapes and dtypes of arguments and results by name."""
    forms = {}
    for name in (*call.arguments, *call.results):
        dtypes = [getattr(torch, call.dtype_of(name))]
        if dtypes == [torch.bool]:
            dtypes.append(torch.uint8)
        forms[name] = call.shape(name, sizes), dtypes
    return forms


def _checked(name, array, shape, dtypes):
    """The array, dense; `ValueError` where the library would misread it."""
    if array.shape != shape or array.dtype not in dtypes or not array.is_cpu:
        raise ValueError(
            f"{name}: expected a tensor of {dtypes[0]} and shape {shape} on "
            f"the CPU. Received: {array.dtype}, {tuple(array.shape)} on "
            f"{array.device}."
        )
    if not array.is_contiguous() or array.is_neg():
        array = array.contiguous().resolve_neg()
    alignment = 16 if name == "residuals" else array.itemsize
    return array.clone() if array.data_ptr() % alignment else array


def new(call, name, shape, arrays):
    """A result without values, on the device of the arrays."""
    device = next(iter(arrays.values())).device
    dtype = getattr(torch, call.dtype_of(name))
    return torch.empty(shape, dtype=dtype, device=device)


def _recycled(size):
    """An uninitialised tensor of so many bytes, which serves again later."""
    if size < _SMALL:
        return torch.empty(size, dtype=torch.uint8, device="cpu")
    pieces = of_session("pieces", native.Pieces)
    piece = pieces.pop()
    if piece is None or not size <= len(piece) <= 2 * size:
        piece = torch.empty(size, dtype=torch.uint8, device="cpu")
    # The tensor's storage holds a reference to the array, whose finalizer runs
    # when the last tensor with that storage is gone.
    array = piece.numpy()[:size]
    weakref.finalize(array, _keep, weakref.ref(pieces), piece).atexit = False
    return torch.from_numpy(array)


def _keep(session, piece):
    """Gives a piece back, unless the session was cleared."""
    pieces = session()
    if pieces is not None:
        pieces.append(piece)


def _all_of(call, made, arrays):
    return tuple(
        made[name] if name in made else new(call, name, (0,), arrays)
        for name in call.gives
    )


def _setup_context(call, ctx, inputs, output):
    takes, gives = call.FORWARD
    ctx.options = inputs[len(takes) :]
    residuals = output[gives.index("residuals")]
    ctx.mark_non_differentiable(residuals)
    ctx.save_for_backward(*inputs[: len(takes)], residuals)


def _backward(call, ctx, *cotangents):
    takes, gives = call.FORWARD
    *saved, residuals = ctx.saved_tensors
    results, *options = ctx.options
    if "residuals" not in results:
        kept = f"{results},residuals"
        made = torch.ops.keras_ln.forward(*saved, kept, *options)
        residuals = made[gives.index("residuals")]
    given = dict(zip(takes, saved, strict=True)) | {"residuals": residuals}
    wanted = results.split(",")
    for name, cotangent in zip(gives, cotangents, strict=True):
        if name in wanted and name != "residuals":
            given[f"d_{name}"] = cotangent
    takes_backward, gives_backward = call.BACKWARD
    names = [
        name
        for name in gives_backward
        if given[name.removeprefix("d_")] is not None
    ]
    gradients = torch.ops.keras_ln.backward(
        *[given.get(name) for name in takes_backward], ",".join(names), *options
    )
    by_name = dict(zip(gives_backward, gradients, strict=True))
    return (
        *[by_name[f"d_{n}"] if f"d_{n}" in names else None for n in takes],
        *[None] * len(ctx.options),
    )


def no_backward(ctx, *cotangents):
    """Raises the error of an operator without a gradient."""
    raise NotImplementedError(
        "Recurrent layers have no second derivatives through torch.compile. "
        "Compute them without torch.compile."
    )
