"""Data of the experiments: embedded, published, and streams of batches."""
