"""Other libraries' layouts of weights, and how a cell of ours gets them.

Letters of shapes: D input features, U units, P the size of h, G the columns of
all gates.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.base_rnn import BaseRNN

Arrays = dict[str, np.ndarray]
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class Layout:
    """The weights of another library's cell, and what they are here."""

    # The library's layer, for messages.
    owner: str
    cell: type[BaseCell]
    # By the library's names: ours, and the letters of the shape. An array with
    # two of our names has a row for each; arrays with the same one are added.
    # The first is the kernel.
    weights: Mapping[str, tuple[str, str]]
    # The arguments with which the cell computes the same.
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Other arguments that the library's layer has too, which the weights do not
    # tell. What neither has is as by default.
    free: tuple[str, ...] = ()
    # The key of a weight: `{}` is its name, and the group names the layer and
    # direction, if there may be several.
    key: str = "{}()"
    # The library's gates in our order.
    gates: tuple[int, ...] = ()
    transposed: bool = False
    # Weights that a layer has all, or none; several in a string are a group.
    optional: tuple[str, ...] = ()
    # Whether the cell may have gammas and betas that are not loaded.
    kernels_only: bool = False
    # What else changes, given the cell and the arrays by keras_ln's names.
    arrange: Callable[[Any, Arrays], Arrays] = lambda cell, arrays: arrays
    # What holds the weights, for messages.
    holder: str = "{} or its state_dict()"


def load(layout: Layout, layers: Any, weights: Any, **settings: Any) -> Any:
    """Builds layers that are not built, and sets their weights.

    Args:
        layout: the weights' layout.
        layers: a layer, cell or `Bidirectional`, or a list of them.
        weights: a module with a `state_dict()`, or the weights by name.
        **settings: the cell's settings beside the layout's.

    Raises:
        ValueError: before any weight is set.
    """
    parts = _parts(layout, weights)
    given = layers if isinstance(layers, Sequence) else [layers]
    both = [x for x in given if isinstance(x, keras.layers.Bidirectional)]
    single: list[Any] = []
    for x in given:
        single += [x.forward_layer, x.backward_layer] if x in both else [x]
    if len(single) != len(parts):
        raise ValueError(
            "Argument `layers` must have one layer for each of "
            f"{layout.owner}: {', '.join(filter(None, parts)) or 'only one'}. "
            f"Received: {len(single)}; a Bidirectional counts as two."
        )
    cells = [_cell_of(layer, layout, settings) for layer in single]
    if len({*map(id, cells)}) < len(cells):
        raise ValueError(
            "Argument `layers` must be different layers. Received: the same "
            "layer several times; make each with its own call."
        )
    loaded = [
        _arrays(layout, layer, cell, part)
        for layer, cell, part in zip(single, cells, parts.values(), strict=True)
    ]
    for layer, cell, arrays in zip(single, cells, loaded, strict=True):
        if not layer.built:
            steps = () if layer is cell else (None,)
            layer.build((None, *steps, arrays["kernel"].shape[0]))
        for name, array in arrays.items():
            getattr(cell, name).assign(array)
    # Otherwise Keras would build them when they are called.
    for layer in both:
        layer.built = True
    return layers


def _parts(layout: Layout, weights: Any) -> dict[str, dict[str, Any]]:
    """For each layer and direction the keys and weights by their names."""
    if hasattr(weights, "state_dict"):
        weights = weights.state_dict()
    given = weights if isinstance(weights, Mapping) else {}
    parts: dict[str, dict[str, Any]] = {}
    for key, weight in given.items():
        for name in layout.weights:
            pattern = layout.key.replace("{}", re.escape(name))
            if match := re.fullmatch(pattern, str(key)):
                parts.setdefault(match[1] or "", {})[name] = (key, weight)
    names = {*layout.weights}
    groups = [{*group.split()} for group in layout.optional]

    def whole(part: dict[str, Any]) -> bool:
        missing = names - part.keys()
        return missing == set().union(*(g for g in groups if g <= missing))

    if (
        not parts
        or not all(map(whole, parts.values()))
        or sum(map(len, parts.values())) != len(given)
    ):
        hint = ""
        keys = sorted(map(str, given))
        if any(re.search(r"parametrizations\.|_[gv]$", key) for key in keys):
            hint = (
                " Of a weight-normalised module first call torch.nn.utils."
                "parametrize.remove_parametrizations(module, name) with each "
                "weight's name, or torch.nn.utils.remove_weight_norm if it "
                "has names that end in _g."
            )
        raise ValueError(
            f"Argument `weights` must be {layout.holder.format(layout.owner)}, "
            f"with {', '.join(layout.weights)} of "
            f"{'one' if layout.key.endswith('()') else 'every'} cell. "
            f"Received: {', '.join(keys) or type(weights).__name__}.{hint}"
        )

    def order(part: str) -> Any:
        return [int(number) for number in re.findall(r"\d+", part)], part

    return {part: parts[part] for part in sorted(parts, key=order)}


def _cell_of(layer: Any, layout: Layout, settings: dict[str, Any]) -> Any:
    """The cell of a layer, or the cell itself, with the right settings."""
    cell = layer.cell if isinstance(layer, BaseRNN) else layer
    name = layout.cell.__name__.removesuffix("Cell")
    if not isinstance(cell, layout.cell):
        raise ValueError(
            f"Argument `layer` must be a keras_ln {name} or {name}Cell. "
            f"Received: {type(layer).__name__}."
        )
    settings = {**settings, **layout.settings}
    received = {argument: getattr(cell, argument) for argument in settings}
    segments = cell.equations.segments
    # As `spec_of` reads it.
    summed = "sum" in cell.normalize and getattr(cell, "groups", "") == "paper"
    if "groups" in settings and (
        segments["all" if summed else cell.groups]
        == segments[settings["groups"]]
    ):
        received["groups"] = settings["groups"]
    if not layout.kernels_only:
        config = cell.get_config()
        defaults = inspect.signature(layout.cell.__init__).parameters
        for option in (*cell.equations.options, "zoneout", "cell_zoneout"):
            if option in config and option not in (*settings, *layout.free):
                if config[option] != defaults[option].default:
                    received[option] = config[option]
                    settings[option] = defaults[option].default
    if received != settings:
        asked, found = (
            ", ".join(f"{name}={value!r}" for name, value in values.items())
            for values in (settings, received)
        )
        raise ValueError(
            f"Argument `layer` must have the settings of {layout.owner}. Make "
            f"it with {name}(units, {asked}). Received: {found}."
        )
    return cell


def _arrays(
    layout: Layout, layer: Any, cell: Any, part: dict[str, Any]
) -> Arrays:
    """The arrays of a cell by our names, if they fit it."""
    given = {name: _as_floats(*weight) for name, weight in part.items()}
    letters = {name: layout.weights[name][1].split() for name in given}
    first = next(iter(layout.weights))
    units, kernel = cell.units, given[first]
    sizes = {"2": 2, "U": units, "P": cell.sizes["h"]}
    sizes["G"] = cell.equations.gates * units
    if cell.built:
        sizes["D"] = cell.kernel.shape[0]
    else:
        inputs = kernel.shape[-layout.transposed] if kernel.ndim == 2 else 1
        sizes["D"] = max(inputs - units * ("D+U" in letters[first]), 1)
    sizes["D+U"] = sizes["D"] + units
    _check_fit(
        layer,
        {name: tuple(sizes[k] for k in axes) for name, axes in letters.items()},
        given,
    )
    arrays: Arrays = {}
    for theirs, array in given.items():
        array = array.T if layout.transposed else array
        if layout.gates and "G" in letters[theirs]:
            gates = np.split(array, len(layout.gates), axis=-1)
            array = np.concatenate([gates[k] for k in layout.gates], axis=-1)
        names = layout.weights[theirs][0].split()
        rows = array if len(names) > 1 else [array]
        for name, row in zip(names, rows, strict=True):
            arrays[name] = arrays[name] + row if name in arrays else row
    arrays = layout.arrange(cell, arrays)
    shapes = cell.weight_shapes(sizes["D"])
    if layout.kernels_only:
        shapes = {
            name: shape
            for name, shape in shapes.items()
            if name in arrays or not name.endswith(("gamma", "beta"))
        }
    _check_fit(layer, shapes, arrays)
    if not layer.built and getattr(layer, "stateful", False):
        raise ValueError(
            f"{layer.name} is stateful, so it must be built for its batch "
            "size before it gets weights. Received: a layer that is not "
            f"built. Call {layer.name}.build((batch, None, {sizes['D']})) "
            "first."
        )
    return arrays


def joined(arrays: Arrays, gates: Sequence[str]) -> Arrays:
    """The arrays, with one gamma and one beta of the sum for all gates."""
    for name in ("gamma", "beta"):
        parts = [arrays.pop(f"{gate}_{name}") for gate in gates]
        arrays[f"sum_{name}"] = np.concatenate(parts)
    return arrays


def epsilon_of(weights: Any) -> dict[str, float]:
    """The epsilon of a module's norms; a `state_dict()` does not contain it."""
    modules = weights.modules() if hasattr(weights, "modules") else ()
    found = {module.eps for module in modules if hasattr(module, "eps")}
    return {"epsilon": found.pop()} if found else {}


def _check_fit(layer: Any, shapes: dict[str, Any], arrays: Arrays) -> None:
    """`ValueError` unless the arrays have the shapes."""
    received = {name: array.shape for name, array in arrays.items()}
    if shapes != received:
        names = sorted({*shapes, *received})
        expected, found = (
            ", ".join(
                f"{name} {by.get(name, 'left out')}"
                for name in names
                if shapes.get(name) != received.get(name)
            )
            for by in (shapes, received)
        )
        raise ValueError(
            f"Argument `weights` must fit {layer.name}: expected {expected}. "
            "Shapes depend on its arguments `units`, `normalize`, `center`, "
            "`use_bias` and `projection`, and on the features for which it was "
            f"built. Received: {found}."
        )


def _as_floats(name: str, weight: Any) -> np.ndarray:
    """A copy of the weight as an array, even of a torch tensor on a GPU.

    Half precision becomes float32, exactly. `ValueError` unless it has floats.
    """
    array, cause = weight, None
    try:
        if hasattr(weight, "detach"):
            array = weight.detach().cpu()
            # NumPy knows no bfloat16, and cannot read it from torch.
            if str(array.dtype) == "torch.bfloat16":
                array = array.float()
        array = np.asarray(array)
        received = f"dtype {array.dtype.name}"
    # RuntimeError: of torch, for a tensor without data.
    except (RuntimeError, TypeError, ValueError) as error:
        received, cause = f"{type(weight).__name__} ({error})", error
    if cause or array.dtype.name not in _FLOATS:
        raise ValueError(
            f"Argument `weights` must hold {name} as an array of "
            f"{', '.join(_FLOATS[:-1])} or {_FLOATS[-1]}. Received: {received}."
        ) from cause
    wide = array.dtype.name == "float64"
    # In the machine's order of bytes, which old files may not have.
    return array.astype("float64" if wide else "float32")
