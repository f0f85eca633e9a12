"""Data of the experiments: embedded, published, and streams of batches.

A missing or broken file or folder is an `InputError` that names it.
"""
