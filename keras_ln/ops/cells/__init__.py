"""Recurrent cells: a step, its gradient, and the op for whole sequences."""
