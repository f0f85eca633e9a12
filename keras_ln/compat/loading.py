"""Assigns arrays to the weights of keras_ln's cells, if they fit."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.base_rnn import BaseRNN

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def cell_of(layer: Any, cell_class: type[BaseCell]) -> Any:
    """The cell of a sequence layer, or the cell itself."""
    cell = layer.cell if isinstance(layer, BaseRNN) else layer
    if not isinstance(cell, cell_class):
        name = cell_class.__name__
        raise ValueError(
            f"Argument `layer` must be a keras_ln {name.removesuffix('Cell')} "
            f"or {name}. Received: {type(layer).__name__}."
        )
    return cell


def load(
    layer: Any,
    cell: Any,
    arrays: dict[str, np.ndarray],
    normalized: bool = False,
) -> Any:
    """Builds the layer if it is not built, and sets its weights.

    With `normalized` it may have gammas and betas that are not loaded.
    """
    check_fit(layer, cell, arrays, normalized)
    if not layer.built:
        steps = () if layer is cell else (None,)
        layer.build((None, *steps, arrays["kernel"].shape[0]))
    for name, array in arrays.items():
        getattr(cell, name).assign(array)
    return layer


def check_fit(
    layer: Any,
    cell: Any,
    arrays: dict[str, np.ndarray],
    normalized: bool = False,
) -> None:
    """`ValueError` unless the arrays and the layer fit for `load`."""
    check_matrices(arrays)
    kernel = cell.kernel if cell.built else arrays["kernel"]
    # Known before the layer is built: a layer that does not fit stays unbuilt.
    shapes = cell.weight_shapes(kernel.shape[0])
    received = {name: array.shape for name, array in arrays.items()}
    if normalized:
        shapes = {
            name: shape
            for name, shape in shapes.items()
            if name in received or not name.endswith(("gamma", "beta"))
        }
    if shapes != received:
        raise ValueError(
            f"Argument `weights` must fit {layer.name}, which has "
            f"{list_shapes(shapes)}. These depend on its arguments `units`, "
            "`normalize`, `center` and `use_bias`, and on the features for "
            f"which it was built. Received: {list_shapes(received)}."
        )
    if not layer.built and getattr(layer, "stateful", False):
        raise ValueError(
            f"{layer.name} is stateful, so it must be built for its batch "
            "size before it gets weights. Received: a layer that is not "
            f"built. Call {layer.name}.build((batch, None, "
            f"{kernel.shape[0]})) first."
        )


def check_settings(cell: Any, other: str, settings: dict[str, Any]) -> None:
    """`ValueError` unless the cell has the settings of the other one."""
    if any(getattr(cell, name) != value for name, value in settings.items()):
        asked, received = (
            ", ".join(f"{name}={value!r}" for name, value in values.items())
            for values in (
                settings,
                {name: getattr(cell, name) for name in settings},
            )
        )
        kind = type(cell).__name__.removesuffix("Cell")
        raise ValueError(
            f"Argument `layer` must have the settings of {other}. Make it with "
            f"{kind}(units, {asked}). Received: {received}."
        )


def check_one_mean(cell: Any, other: str) -> None:
    """`ValueError` if the gates of an LSTM have statistics of their own."""
    if cell.groups == "gate":
        raise ValueError(
            "Argument `layer` must have one mean and variance for all gates, "
            f"as {other}: leave out `groups`. Received: groups='gate'."
        )


def check_matrices(arrays: dict[str, np.ndarray]) -> None:
    """`ValueError` unless both kernels are matrices, and not empty."""
    for name in ("kernel", "recurrent_kernel"):
        if arrays[name].ndim != 2 or 0 in arrays[name].shape:
            raise ValueError(
                f"Argument `weights` must hold {name} as a matrix without "
                f"axes of size 0. Received: shape {arrays[name].shape}."
            )


def state_dict(weights: Any) -> Any:
    """The weights of a torch module by name; others are returned unchanged."""
    return weights.state_dict() if hasattr(weights, "state_dict") else weights


def as_floats(name: str, weight: Any) -> np.ndarray:
    """The weight as an array, even from a torch tensor on a GPU.

    Half precision becomes float32, exactly. `ValueError` unless it has floats.
    """
    array = weight
    try:
        if hasattr(weight, "detach"):
            array = weight.detach().cpu()
            # NumPy knows no bfloat16, and cannot read it from torch.
            if str(array.dtype) == "torch.bfloat16":
                array = array.float()
        array = np.asarray(array)
    # RuntimeError: of torch, for a tensor without data.
    except (RuntimeError, TypeError, ValueError) as error:
        raise _no_floats(name, f"{type(weight).__name__} ({error})") from error
    if array.dtype.name not in _FLOATS:
        raise _no_floats(name, f"dtype {array.dtype.name}")
    wide = array.dtype.name == "float64"
    # In the machine's order of bytes, which old files may not have.
    return array.astype("float64" if wide else "float32", copy=False)


def _no_floats(name: str, received: str) -> ValueError:
    return ValueError(
        f"Argument `weights` must hold {name} as an array of "
        f"{', '.join(_FLOATS[:-1])} or {_FLOATS[-1]}. Received: {received}."
    )


def list_shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Names and shapes, for messages."""
    return ", ".join(
        f"{name} {shape}" for name, shape in sorted(shapes.items())
    )


def names_in(weights: Any) -> str:
    """The names of weights, or their type if they have none."""
    given = weights if isinstance(weights, Mapping) else ()
    return ", ".join(sorted(map(str, given))) or type(weights).__name__
