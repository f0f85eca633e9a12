"""Layer normalization and its rivals for Keras 3."""

from keras_ln.layers.normalization.batch_normalization import BatchNormalization
from keras_ln.layers.normalization.layer_normalization import LayerNormalization
from keras_ln.layers.normalization.recurrent_batch_norm import (
    RecurrentBatchNorm,
)
from keras_ln.layers.normalization.statistics import reestimate_statistics
from keras_ln.layers.normalization.weight_norm_dense import WeightNormDense
from keras_ln.layers.rnn.ln_lstm import LNLSTM, LNLSTMCell
from keras_ln.version import __version__

__all__ = [
    "BatchNormalization",
    "LNLSTM",
    "LNLSTMCell",
    "LayerNormalization",
    "RecurrentBatchNorm",
    "WeightNormDense",
    "__version__",
    "reestimate_statistics",
]
