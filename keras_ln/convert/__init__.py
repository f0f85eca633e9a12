"""Models converted: normalised, with fast layers, Keras' own, in pieces."""

from keras_ln.convert.fast_rnn import rnn_summary, to_keras, with_fast_rnn
from keras_ln.convert.litert import litert
from keras_ln.convert.normalized import with_layer_norm
from keras_ln.convert.states import with_states

__all__ = [
    "litert",
    "rnn_summary",
    "to_keras",
    "with_fast_rnn",
    "with_layer_norm",
    "with_states",
]
