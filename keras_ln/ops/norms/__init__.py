"""Normalization of tensors, by the statistics of rows, columns, weights."""
