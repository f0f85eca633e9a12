"""Keras layers, and cells for them."""

from keras_ln.layers.normalization.batch_normalization import BatchNormalization
from keras_ln.layers.normalization.layer_normalization import LayerNormalization
from keras_ln.layers.normalization.recurrent_batch_norm import (
    RecurrentBatchNorm,
)
from keras_ln.layers.normalization.weight_norm_dense import WeightNormDense
from keras_ln.layers.normalization.weight_normalization import (
    WeightNormalization,
)
from keras_ln.layers.rnn.bn_lstm import BNLSTM
from keras_ln.layers.rnn.bn_lstm_cell import BNLSTMCell
from keras_ln.layers.rnn.ln_gru import LNGRU, LNGRUCell
from keras_ln.layers.rnn.ln_lstm import LNLSTM, LNLSTMCell
from keras_ln.layers.rnn.ln_simple_rnn import LNSimpleRNN, LNSimpleRNNCell
from keras_ln.layers.rnn.wn_lstm import WNLSTM, WNLSTMCell

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
    "RecurrentBatchNorm",
    "WNLSTM",
    "WNLSTMCell",
    "WeightNormDense",
    "WeightNormalization",
]
