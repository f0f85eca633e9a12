"""Data of the experiments: embedded, published, and streams of batches.

What is missing or broken is an `InputError`, which names the file or folder.
"""
