"""Functions of tensors, with hand-written gradients."""

from keras_ln.engine import implementation, unsupported_reason
from keras_ln.engine.portable import portable
from keras_ln.ops.cells.bn_lstm import bn_lstm
from keras_ln.ops.cells.gru import ln_gru, ln_gru_step
from keras_ln.ops.cells.lstm import ln_lstm, ln_lstm_step
from keras_ln.ops.cells.simple_rnn import ln_simple_rnn, ln_simple_rnn_step
from keras_ln.ops.cells.wn_lstm import wn_lstm, wn_lstm_step
from keras_ln.ops.norms.layer_normalization import layer_normalization

__all__ = [
    "bn_lstm",
    "implementation",
    "layer_normalization",
    "ln_gru",
    "ln_gru_step",
    "ln_lstm",
    "ln_lstm_step",
    "ln_simple_rnn",
    "ln_simple_rnn_step",
    "portable",
    "unsupported_reason",
    "wn_lstm",
    "wn_lstm_step",
]
