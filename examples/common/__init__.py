"""The common parts of the experiments: flags, training, figures and data."""
