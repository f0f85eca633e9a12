"""Functions of tensors: the maths of keras_ln, with hand-written gradients."""

from keras_ln.ops.cells.bn_lstm import bn_lstm
from keras_ln.ops.cells.gru import ln_gru
from keras_ln.ops.cells.lstm import ln_lstm
from keras_ln.ops.cells.simple_rnn import ln_simple_rnn
from keras_ln.ops.cells.wn_lstm import wn_lstm
from keras_ln.ops.normalization.layer_normalization import layer_normalization
from keras_ln.ops.portable import portable
from keras_ln.ops.recurrence import implementation, unsupported_reason

__all__ = [
    "bn_lstm",
    "implementation",
    "layer_normalization",
    "ln_gru",
    "ln_lstm",
    "ln_simple_rnn",
    "portable",
    "unsupported_reason",
    "wn_lstm",
]
