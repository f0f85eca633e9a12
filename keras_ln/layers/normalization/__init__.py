"""Normalisation layers and the weight-normalised dense layer."""
