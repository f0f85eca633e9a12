"""Layer normalization and its rivals for Keras 3."""

from keras_ln.layers.normalization.batch_normalization import (
    BatchNormalization,
)
from keras_ln.layers.normalization.layer_normalization import (
    LayerNormalization,
)
from keras_ln.version import __version__

__all__ = ["BatchNormalization", "LayerNormalization", "__version__"]
