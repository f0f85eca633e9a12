"""Layer normalization and its rivals for Keras 3."""

from keras_ln.version import __version__

__all__ = ["__version__"]
