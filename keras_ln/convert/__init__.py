"""Models converted: normalised, with our fast layers, and back to Keras'."""

from keras_ln.convert.fast_rnn import rnn_summary, to_keras, with_fast_rnn
from keras_ln.convert.normalized import with_layer_norm

__all__ = ["rnn_summary", "to_keras", "with_fast_rnn", "with_layer_norm"]
