"""Calls of keras-ln-kernels on TensorFlow tensors, as custom calls of XLA.

TensorFlow offers no public way to make one. What is used instead was tried
with TensorFlow 2.21: `XLA_FFI_GetApi` of its shared library, and the op
XlaCallModule, which `jax2tf` makes its programs of.

Letters: B batch, T steps.
"""

import ctypes
import functools
import importlib.util
import struct
from pathlib import Path

import tensorflow as tf

from keras_ln._keras import exporter
from keras_ln.backend import native

_CALL_MODULE = "tensorflow.compiler.tf2xla.python.xla"
# The version of XlaCallModule that is asked for.
_VERSION = 9
_UNSAVEABLE = (
    "It calls keras-ln-kernels. Trace it inside of keras_ln.ops.portable(), or "
    "save the tf.function in its place."
)
_TYPES = {"float32": "f32", "float64": "f64", "bool": "i1", "uint8": "ui8"}


@native.once
def _registered():
    """None after XLA has registered the calls, or why it cannot."""
    from keras_ln_kernels import xla

    return xla.unsupported_reason() or register(
        dict(zip(native.TARGETS.values(), xla.handlers(), strict=True)), "Host"
    )


def register(handlers, platform):
    """Tells XLA of handlers by name; None, or why that cannot be."""
    from keras_ln_kernels import xla

    libraries = sorted(
        Path(tf.sysconfig.get_lib()).glob("libtensorflow_framework*")
    )
    if not libraries or importlib.util.find_spec(_CALL_MODULE) is None:
        return f"TensorFlow {tf.__version__} has no custom calls of XLA."
    library = ctypes.CDLL(str(libraries[0]))
    if not hasattr(library, "XLA_FFI_GetApi"):
        return f"TensorFlow {tf.__version__} does not export XLA_FFI_GetApi."
    library.XLA_FFI_GetApi.restype = ctypes.c_void_p
    return xla.register(library.XLA_FFI_GetApi(), handlers, platform)


def is_exported():
    if tf.executing_eagerly():
        return False
    # Saving traces functions anew, but for concrete ones.
    # test_exports_hold_no_kernels notices a change.
    from tensorflow.python.saved_model import save_context

    return save_context.in_save_context() or exporter() is not None


reason = native.reason_with(_registered)


def call_native(call, arrays):
    from keras_ln_kernels import xla

    given = [tf.convert_to_tensor(arrays[name]) for name in call.arguments]
    shapes = [tuple(array.shape.as_list()) for array in given]
    sizes = call.sizes(dict(zip(call.arguments, shapes, strict=True)))
    lengths = dict(zip("BTDU", sizes, strict=True))
    lengths["G"] = call.shape("d_kernel", sizes._replace(batch=0, steps=0))[1]
    if "residuals" in call.results:
        layout = call.residual_layout(sizes.features, sizes.units)
        lengths |= zip(("fixed", "row", "step"), layout, strict=True)
        unknown = None in (sizes.batch, sizes.steps)
        lengths["R"] = None if unknown else call.residual_bytes(sizes)
    made = call_module(
        native.TARGETS[call.backward],
        xla.attributes(call),
        given,
        [(call.letters(name), call.dtype_of(name)) for name in call.results],
        lengths,
        "CPU",
    )
    return dict(zip(call.results, made, strict=True))


def call_module(target, attributes, given, results, lengths, platform):
    """The results of a custom call that is registered for a platform.

    `results` are pairs of letters and dtype. `lengths` has the number of each
    letter, or None if it is known when TensorFlow compiles: B and T are the
    first axes of the first array, and R follows from others.
    """
    from tensorflow.compiler.tf2xla.python import xla as tf2xla

    _refuse_to_be_saved()
    text, shapes = _module(
        target,
        tuple(attributes.items()),
        tuple((tuple(a.shape.as_list()), a.dtype.name) for a in given),
        tuple(results),
        tuple(lengths.items()),
    )
    return tf2xla.call_module(
        given,
        version=_VERSION,
        module=text,
        Tout=[tf.as_dtype(dtype) for _, dtype in results],
        Sout=shapes,
        platforms=[platform],
        has_token_input_output=False,
    )


def _refuse_to_be_saved():
    """Saving what is being traced says why not, before anyone serves it.

    A concrete function would be saved as it is; of a `tf.function` another
    trace is saved. TensorFlow hands the mark on to the functions that call this
    one, but not from the body of a loop to what is around it (2.21).
    """
    if not tf.executing_eagerly():
        graph = tf.compat.v1.get_default_graph()
        graph.mark_as_unsaveable(_UNSAVEABLE)


@functools.lru_cache(maxsize=256)
def _module(target, attributes, arguments, results, lengths):
    """StableHLO text of a module with the custom call; the results' shapes.

    A size that is None becomes known when TensorFlow compiles the module. The
    custom call then takes the shapes of its results as further operands.
    """
    numbers = dict(lengths)
    shapes = [tuple(numbers[n] for n in letters) for letters, _ in results]
    types = [_type(*pair) for pair in arguments]
    outputs = ", ".join(
        _type(shape, dtype)
        for shape, (_, dtype) in zip(shapes, results, strict=True)
    )
    operands = [f"%a{i}" for i in range(len(types))]
    signature = ", ".join(map(": ".join, zip(operands, types, strict=True)))
    ranks, lines = [len(shape) for shape, _ in arguments], []
    call = {"api_version": "4 : i32"}
    if any(None in shape for shape in shapes):
        lines = _lengths(types[0], numbers)
        for i, (letters, _) in enumerate(results):
            parts = ", ".join(f"%{letter}" for letter in letters)
            shape = f"tensor<{len(letters)}xi64>"
            lines.append(
                f"%s{i} = stablehlo.concatenate {parts}, dim = 0 : "
                f"({', '.join(['tensor<1xi64>'] * len(letters))}) -> {shape}"
            )
            operands.append(f"%s{i}")
            types.append(shape)
            ranks.append(1)
        places = list(range(len(arguments), len(operands)))
        call["indices_of_shape_operands"] = (
            f"dense<{places}> : tensor<{len(places)}xi64>"
        )
    call["operand_layouts"] = _row_major(ranks)
    call["result_layouts"] = _row_major(map(len, shapes))
    call["backend_config"] = _entries(
        {name: _scalar(value) for name, value in attributes}
    )
    names = ", ".join(f"%r#{i}" for i in range(len(results)))
    lines += [
        f'%r:{len(results)} = stablehlo.custom_call @"{target}"'
        f"({', '.join(operands)}) {_entries(call)} : "
        f"({', '.join(types)}) -> ({outputs})",
        f"return {names} : {outputs}",
    ]
    body = "\n".join(lines)
    # The attribute makes TensorFlow put numbers in the place of "?".
    text = (
        "module @keras_ln attributes {jax.uses_shape_polymorphism = true} {\n"
        f"func.func public @main({signature}) -> ({outputs}) {{\n"
        f"{body}\n}}\n}}"
    )
    return text, shapes


def _type(shape, dtype):
    sizes = ["?" if size is None else str(size) for size in shape]
    return f"tensor<{'x'.join([*sizes, _TYPES[dtype]])}>"


def _row_major(ranks):
    orders = (
        f"dense<{[*reversed(range(n))]}> : tensor<{n}xindex>" for n in ranks
    )
    return f"[{', '.join(orders)}]"


def _lengths(x, numbers):
    """Lines that give every letter of a shape its number, as tensor<1xi64>."""
    lines = []
    for place, letter in enumerate("BT"):
        lines += [
            f"%{letter}32 = stablehlo.get_dimension_size %a0, dim = {place} : "
            f"({x}) -> tensor<i32>",
            f"%{letter}64 = stablehlo.convert %{letter}32 : "
            "(tensor<i32>) -> tensor<i64>",
            f"%{letter} = stablehlo.reshape %{letter}64 : "
            "(tensor<i64>) -> tensor<1xi64>",
        ]
    lines += [
        f"%{name} = stablehlo.constant dense<{number}> : tensor<1xi64>"
        for name, number in numbers.items()
        if name not in "BTR"
    ]
    # The letter R: the bytes of the residuals.
    for name, operation, left, right in (
        ("steps", "multiply", "T", "step"),
        ("of_row", "add", "steps", "row"),
        ("rows", "multiply", "of_row", "B"),
        ("R", "add", "rows", "fixed"),
    )[: 4 if "R" in numbers else 0]:
        lines.append(
            f"%{name} = stablehlo.{operation} %{left}, %{right} : tensor<1xi64>"
        )
    return lines


def _entries(attributes):
    entries = [f"{name} = {value}" for name, value in attributes.items()]
    return f"{{{', '.join(entries)}}}"


def _scalar(value):
    """A number as an attribute, to its last bit."""
    if isinstance(value, int):
        return f"{value} : i64"
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return f"0x{bits:016X} : f64"
