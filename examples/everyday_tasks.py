"""The everyday tasks: their sizes, what they are called, and their data."""

# Epochs, batch size, units, learning rate, examples, and the largest number of
# steps over which a task needs memory.
TASKS = {
    "addition": (14, 128, 96, 3e-3, 40_000, 11),
    "characters": (12, 32, 80, 3e-3, 8_000, 64),
    "long_memory": (20, 50, 32, 3e-3, 10_000, 200),
    "verses": (10, 64, 64, 1e-3, 20_000, 40),
    "forecast": (20, 64, 48, 3e-3, 10_000, 64),
    "spelling": (10, 64, 128, 3e-3, 60_000, 24),
    "movements": (20, 32, 64, 3e-3, 2_000, 60),
    "chorales": (60, 16, 128, 3e-3, 400, 64),
}
# Their data are in packages; see `common.datasets.practice`.
PACKAGED = ("spelling", "movements", "chorales")
# Batch statistics of a step need sequences of one length.
PADDED = ("verses", *PACKAGED)
_BIBLE = "of the King James Bible"
# The data, the loss, and the error that a task is judged by.
NAMES = {
    "addition": ("sums of numbers", "NLL", "wrong sums (%)"),
    "characters": (f"pieces {_BIBLE}", "NLL", "wrong characters (%)"),
    "long_memory": ("sums of two of 200 numbers", "MSE", "RMSE"),
    "verses": (f"verses {_BIBLE}", "NLL", "wrong books (%)"),
    "forecast": ("windows of Mackey-Glass series", "MSE", "RMSE"),
    "spelling": ("words of the CMU dictionary", "NLL", "wrong words (%)"),
    "movements": ("movements of a watch", "NLL", "wrong exercises (%)"),
    "chorales": ("chorales of Bach", "NLL (nats per frame)", "wrong notes (%)"),
}


def load(task: str, examples: int):
    """The `sequences.Sequences` of a task."""
    from common.datasets import practice, sequences

    module = practice if task in PACKAGED else sequences
    return getattr(module, task)(examples)
