"""Programs of ordinary operations, for runtimes without XLA."""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any

from keras_ln import backend

# For layers, which may not import the backend.
current_trace = backend.current_trace

# None outside of `portable()`, else its `unroll`.
_portable: contextvars.ContextVar[bool | None] = contextvars.ContextVar(
    "portable", default=None
)
# One entry per `portable()` that is open, in whatever thread: torch.compile
# looks into a list, and not into a context variable.
_open: list[bool] = []


@contextlib.contextmanager
def portable(*, unroll: bool = False) -> Iterator[None]:
    """Models that are exported in here consist of ordinary operations.

    A SavedModel from TensorFlow holds functions that XLA compiles where it is
    served. TensorFlow and TensorFlow Serving can; converters, such as those of
    tensorflow.js and tf2onnx, cannot. Inside this context every layer is traced
    as operations that all runtimes know, a sequence layer as its cell loop. The
    numbers stay the same, up to rounding.

    `model.export` to ONNX, OpenVINO and LiteRT does so without this context.

    Args:
        unroll: whether a sequence layer unrolls its loop, as with its argument
            `unroll=True`, wherever the number of steps is known from
            `keras.Input` or from the `input_signature` of the export. LiteRT
            needs it: it has no lists of tensors to loop over.

    >>> from keras_ln import LNLSTM, ops
    >>> with ops.portable():
    ...     print(ops.unsupported_reason(LNLSTM(4)))
    ops.portable() asks for ordinary operations.
    """
    token = _portable.set(unroll)
    _open.append(unroll)
    try:
        yield
    finally:
        _open.pop()
        _portable.reset(token)


def asks_for_unrolled_loops() -> bool:
    """Whether loops over time must be unrolled."""
    return bool(_open) and _portable.get() is True


def plain_operations_reason(arrays: Mapping[str, Any] | None) -> str | None:
    """Why the framework must differentiate here and now, or None.

    Without arrays, as far as that is known.
    """
    if _open and _portable.get() is not None:
        return "ops.portable() asks for ordinary operations."
    return backend.plain_operations_reason(arrays)
