"""What the experiment scripts share: flags, training, figures and data."""
