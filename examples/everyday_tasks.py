"""The everyday tasks: their sizes, and what they are called."""

# Epochs, batch size, units, learning rate, examples.
TASKS = {
    "addition": (14, 128, 96, 3e-3, 40_000),
    "characters": (12, 32, 80, 3e-3, 8_000),
    "long_memory": (20, 50, 32, 3e-3, 10_000),
    "verses": (10, 64, 64, 1e-3, 20_000),
    "forecast": (20, 64, 48, 3e-3, 10_000),
    "spelling": (10, 64, 128, 3e-3, 60_000),
    "movements": (20, 32, 64, 3e-3, 2_000),
    "chorales": (60, 16, 128, 3e-3, 400),
}
# Their data are in packages; see `common.datasets.practice`.
PACKAGED = ("spelling", "movements", "chorales")
# Batch statistics of a step need sequences of one length.
PADDED = ("verses", *PACKAGED)
# The largest number of steps over which a task needs memory.
MEMORY = {
    "addition": 11,
    "characters": 64,
    "long_memory": 200,
    "verses": 40,
    "forecast": 64,
    "spelling": 24,
    "movements": 60,
    "chorales": 64,
}
# The data, the loss, and the error that a task is judged by.
NAMES = {
    "addition": ("sums of numbers", "NLL", "wrong sums (%)"),
    "characters": (
        *("pieces of the King James Bible", "NLL", "wrong characters (%)"),
    ),
    "long_memory": ("sums of two of 200 numbers", "MSE", "RMSE"),
    "verses": ("verses of the King James Bible", "NLL", "wrong books (%)"),
    "forecast": ("windows of Mackey-Glass series", "MSE", "RMSE"),
    "spelling": (
        *("words of the CMU Pronouncing Dictionary", "NLL", "wrong words (%)"),
    ),
    "movements": ("movements of a watch", "NLL", "wrong exercises (%)"),
    "chorales": ("chorales of Bach", "NLL (nats per frame)", "wrong notes (%)"),
}
