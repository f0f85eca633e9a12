"""Recurrent cells, each with its sequence layer."""
