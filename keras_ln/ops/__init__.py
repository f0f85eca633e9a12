"""Functions of tensors: the maths of keras_ln, with hand-written gradients."""

from keras_ln.ops.layer_normalization import layer_normalization
from keras_ln.ops.support import unsupported_reason

__all__ = ["layer_normalization", "unsupported_reason"]
