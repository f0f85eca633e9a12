"""Functions of tensors: the maths of keras_ln, with hand-written gradients."""

from keras_ln.ops.bn_lstm import bn_lstm
from keras_ln.ops.layer_normalization import layer_normalization
from keras_ln.ops.ln_gru import ln_gru
from keras_ln.ops.ln_lstm import ln_lstm
from keras_ln.ops.ln_simple_rnn import ln_simple_rnn
from keras_ln.ops.support import portable, unsupported_reason
from keras_ln.ops.wn_lstm import wn_lstm

__all__ = [
    "bn_lstm",
    "layer_normalization",
    "ln_gru",
    "ln_lstm",
    "ln_simple_rnn",
    "portable",
    "unsupported_reason",
    "wn_lstm",
]
