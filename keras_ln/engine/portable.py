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
# By the names of the LSTM layers that `portable(fused_lstm=True)` has traced,
# why LiteRT's op does not compute them, or "".
_fused_lstms: contextvars.ContextVar[dict[str, str] | None] = (
    contextvars.ContextVar("fused_lstms", default=None)
)
# One entry per open `portable()`, in any thread: torch.compile reads a list,
# but not a context variable.
_open: list[bool] = []


@contextlib.contextmanager
def portable(
    *, unroll: bool = False, fused_lstm: bool = False
) -> Iterator[None]:
    """A context in which models are exported as ordinary operations.

    A SavedModel from TensorFlow holds functions that XLA compiles when it is
    served. TensorFlow and TensorFlow Serving can run them; converters, such as
    tensorflow.js and tf2onnx, cannot. Inside this context every layer is traced
    as operations that all runtimes know, a sequence layer as its cell loop. The
    results stay the same, up to rounding.

    `model.export` to ONNX, OpenVINO and LiteRT needs no context: it always
    writes ordinary operations.

    Args:
        unroll: unroll the loops of sequence layers, as their argument
            `unroll=True` does, if the number of steps is known from
            `keras.Input` or from the `input_signature` of the export. LiteRT
            needs this: it has no lists of tensors to loop over.
        fused_lstm: on TensorFlow, mark the LSTM layers of `with_fast_rnn` so
            that the LiteRT converter, from a SavedModel with a fixed batch size
            and a fixed number of steps, writes each as one op,
            UNIDIRECTIONAL_SEQUENCE_LSTM. It clips c at 10. Layers with a mask,
            `return_state`, `stateful` or given states stay as they are.
            `keras_ln.litert` goes the whole way.

    >>> from keras_ln import LNLSTM, ops
    >>> with ops.portable():
    ...     print(ops.unsupported_reason(LNLSTM(4)))
    ops.portable() asks for ordinary operations.
    """
    token = _portable.set(unroll)
    fused = _fused_lstms.set({} if fused_lstm else None)
    _open.append(unroll)
    try:
        yield
    finally:
        _open.pop()
        _fused_lstms.reset(fused)
        _portable.reset(token)


def fused_lstms() -> dict[str, str] | None:
    """The notes of `portable(fused_lstm=True)`, or None outside of it."""
    return _fused_lstms.get()


def asks_for_unrolled_loops() -> bool:
    """Whether loops over time must be unrolled."""
    return bool(_open) and _portable.get() is True


def trace_context(
    arrays: Mapping[str, Any] | None = None,
) -> backend.TraceContext:
    """The backend's facts about the program, and whether it is portable.

    Without arrays it misses the reasons that depend on them.
    """
    context = backend.trace_context(arrays)
    if _open and _portable.get() is not None:
        reason = "ops.portable() asks for ordinary operations."
        context = context._replace(autodiff_reason=reason)
    return context
