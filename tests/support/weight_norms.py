"""Of weight-normalised layers: their weights by name, and other gains."""

from arrays import to_numpy


def weight(layer, name):
    return next(w for w in layer.weights if w.name == name)


def stretch(layer):
    """Doubles the gains, so that the kernel is not v."""
    for variable in layer.weights:
        if variable.name.split("_")[-1] == "g":
            variable.assign(2.0 * to_numpy(variable))
