"""Keras layers: weights, configuration and masks."""
