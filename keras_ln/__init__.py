"""Layer, batch and weight normalization for Keras 3."""

import importlib
import typing

from keras_ln import _frameworks

if _reason := _frameworks.reason():
    raise ImportError(_reason)

from keras_ln.convert import (
    litert,
    rnn_summary,
    to_keras,
    with_fast_rnn,
    with_layer_norm,
    with_states,
)
from keras_ln.layers import (
    BNLSTM,
    LNGRU,
    LNLSTM,
    WNLSTM,
    BatchNormalization,
    BNLSTMCell,
    LayerNormalization,
    LNGRUCell,
    LNLSTMCell,
    LNSimpleRNN,
    LNSimpleRNNCell,
    RecurrentBatchNorm,
    WeightNormalization,
    WeightNormDense,
    WNLSTMCell,
)
from keras_ln.layers.normalization.reestimate_statistics import (
    reestimate_statistics,
)
from keras_ln.layers.rnn.forget_bias import LogUniformForgetBias
from keras_ln.version import __version__

__all__ = [
    "BNLSTM",
    "BNLSTMCell",
    "BatchNormalization",
    "LNGRU",
    "LNGRUCell",
    "LNLSTM",
    "LNLSTMCell",
    "LNSimpleRNN",
    "LNSimpleRNNCell",
    "LayerNormalization",
    "LogUniformForgetBias",
    "RecurrentBatchNorm",
    "WNLSTM",
    "WNLSTMCell",
    "WeightNormDense",
    "WeightNormalization",
    "__version__",
    "litert",
    "reestimate_statistics",
    "rnn_summary",
    "to_keras",
    "with_fast_rnn",
    "with_layer_norm",
    "with_states",
]

_SUBMODULES = ("analysis", "compat", "layers", "ops", "tuning")

if typing.TYPE_CHECKING:
    from keras_ln import analysis as analysis
    from keras_ln import compat as compat
    from keras_ln import layers as layers
    from keras_ln import ops as ops
    from keras_ln import tuning as tuning
else:
    # Hidden from type checkers, to which it would excuse any misspelled name.
    def __getattr__(name):
        if name in _SUBMODULES:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES])
