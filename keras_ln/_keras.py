"""The parts of Keras (3.8 to 3.16) that it does not export and keras_ln uses.

Only this file handles private modules and attributes of Keras, and differences
between its versions; `tests/contract/test_architecture.py` checks this.
"""

import copy
import importlib.util
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import keras
from keras.src.backend.common import AutocastScope, global_state, masking

# keras.layers.RNN draws the dropout masks of a sequence before its loop, but
# only for cells of this class.
from keras.src.layers.rnn.dropout_rnn_cell import (
    DropoutRNNCell as DropoutRNNCell,
)
from keras.src.models.functional import Functional
from keras.src.saving.serialization_lib import in_safe_mode

if keras.backend.backend() == "torch":
    # Making a tensor and asking for its device takes longer. 3.16 moved the
    # module, which every test on torch notices.
    if importlib.util.find_spec("keras.src.backend.torch.core"):
        from keras.src.backend.torch.core import get_device as torch_device
    else:
        from keras.src.backend.torch.ops.core import get_device as torch_device
else:
    torch_device = None

# The mask that a layer has attached to its output, or None. JAX's tracers take
# no attributes: Keras keeps their masks elsewhere.
mask_of, set_mask = masking.get_keras_mask, masking.set_keras_mask


def calls_of(layer: keras.layers.Layer) -> list[tuple[Any, dict[str, Any]]]:
    """Positional and named arguments of its calls in functional models.

    test_to_keras_refuses_by_name notices a change.
    """
    found = [node.arguments for node in layer._inbound_nodes]
    return [(arguments.args, arguments.kwargs) for arguments in found]


def placed(tensor: Any) -> Any:
    """The tensor, moved to the kind of device that Keras computes on.

    Tensors of torch may be on another, and Keras' own layers move them.
    """
    if torch_device is None:
        return tensor
    kind = getattr(getattr(tensor, "device", None), "type", None)
    if kind == torch_device().partition(":")[0]:
        return tensor
    return keras.ops.convert_to_tensor(tensor)


def reseeded(initializer: Any) -> Any:
    """The initializer, or a copy with a new seed if its user gave none.

    Without a seed, Keras draws one when it makes a random initializer, so that
    weights of one shape would get the same values.
    """
    if getattr(initializer, "_init_seed", "seeded") is not None:
        return initializer
    other = copy.copy(initializer)
    other.seed = keras.initializers.RandomUniform().seed
    return other


def device_names() -> list[str]:
    """The devices that programs run on by default."""
    if torch_device is not None:
        return [torch_device()]
    # There is no keras.distribution, and no other device, up to 3.15.
    if keras.backend.backend() in ("numpy", "openvino"):
        return ["CPU"]
    return keras.distribution.list_devices()


def exporter() -> str | None:
    """Which of Keras' exporters is tracing the program, or None.

    It is the name of a module, such as "onnx", "litert" or "saved_model"; the
    others call "saved_model" to trace. test_exports_hold_no_kernels and
    test_a_converted_model_has_nothing_to_compile notice a change.
    """
    return next((name for name, _ in _exporters()), None)


def exports_unknown_steps() -> bool:
    """Whether a size other than the batch size is unknown to Keras' exporter.

    On torch the exporter traces a size of 1 instead.
    test_torch_exports_a_known_number_of_steps notices a change.
    """
    specs = [
        spec
        for _, frame in _exporters()
        for spec in keras.tree.flatten(frame.f_locals.get("input_signature"))
    ]
    return any(None in (getattr(spec, "shape", ()) or ())[1:] for spec in specs)


def _exporters() -> list[tuple[str, FrameType]]:
    """Names and frames of Keras' exporters on the call stack, outermost first.

    Nothing else tells that a program is traced for a file.
    """
    found, package = [], "keras.src.export."
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith(package):
            found.append((name.removeprefix(package), frame))
        frame = frame.f_back
    return found[::-1]


def input_layer(x: keras.KerasTensor) -> keras.layers.InputLayer:
    """The layer that a symbolic input of a model comes from.

    test_optional_inputs notices a change.
    """
    return x._keras_history.operation


def is_graph(model: Any) -> bool:
    """Whether it is a model whose layers and their calls are known.

    Every test of with_layer_norm notices a change.
    """
    return isinstance(model, keras.Sequential | Functional)


def is_rematerialized(layer: keras.layers.Layer) -> bool:
    """Whether the layer, or one in it, was made in a RematScope.

    Its call may then run a second time in the backward pass. The scope's mode
    "activations" does not count. Keras has had the scope since 3.9.
    test_layers_that_run_again_in_the_backward_pass notices a change.
    """
    for part in layers_within(layer):
        mode = getattr(part, "_remat_mode", None)
        if mode is not None and mode.mode != "activations":
            return True
    return False


def layout(x: keras.KerasTensor) -> str | None:
    """A symbolic tensor's storage: "sparse", "ragged", or None for dense.

    Keras 3.8 has no `ragged`; test_symbolic_tensors_before_ragged notices.
    """
    if x.sparse:
        return "sparse"
    return "ragged" if getattr(x, "ragged", False) else None


def layers_in(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layers directly in a layer, without the layers inside them.

    Every test of with_layer_norm notices a change.
    """
    return layer._flatten_layers(include_self=False, recursive=False)


def layers_within(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The model and all layers in it: cells too, wrapped, or held in lists.

    In their order, which Keras' `_flatten_layers` reverses inside of layers.
    test_reestimate_reaches_nested_layers notices a change.
    """
    found: dict[int, keras.layers.Layer] = {}
    waiting = [model]
    while waiting:
        layer = waiting.pop()
        if id(layer) not in found:
            found[id(layer)] = layer
            waiting += reversed(layer._layers)
    return [*found.values()]


def of_session(name: str, make: Callable[[], Any]) -> Any:
    """The first result of `make` in this thread since clear_session().

    test_memory_of_residuals_is_bounded notices a change.
    """
    name = f"keras_ln_{name}"
    found = global_state.get_global_attribute(name)
    if found is None:
        global_state.set_global_attribute(name, found := make())
    return found


def own_non_trainable_variables(layer: keras.layers.Layer) -> list[Any]:
    """The layer's variables that are not trained, without its sublayers'."""
    return layer._non_trainable_variables


def own_variables(layer: keras.layers.Layer) -> list[Any]:
    """The layer's weights without its sublayers'.

    test_clones_keep_what_is_set_on_a_weight notices a change.
    """
    return layer._trainable_variables + layer._non_trainable_variables


def never_cast(variable: keras.Variable) -> None:
    """Takes a variable out of mixed precision.

    Otherwise Keras' `assign` on torch writes to a cast copy, which is lost.
    test_stateful_layers_keep_their_states notices a change.
    """
    variable._autocast = False


def share_layer(layer: keras.layers.Layer, name: str, part: Any) -> None:
    """Puts another layer in the place of one that is part of a new layer.

    test_pieces_share_weights notices a change.
    """
    layer._layers.remove(getattr(layer, name))
    setattr(layer, name, part)


def through_graph(model: Any, inputs: Any, call: Callable[..., Any]) -> Any:
    """A model's outputs for other symbolic inputs.

    `call(operation, *args, **kwargs)` runs each operation. Every test of
    with_states notices a change.
    """
    if isinstance(model, keras.Sequential):
        model = model._functional
    return model._run_through_graph(
        inputs, operation_fn=lambda operation: operation, call_fn=call
    )


def uncast(variable: keras.Variable) -> Any:
    """The variable's value in its own dtype, even in mixed precision.

    test_half_precision_normalises_in_float32 notices a change.
    """
    with AutocastScope(None):
        return variable.value


def is_loading() -> bool:
    """Whether Keras is making a saved object anew."""
    return in_safe_mode() is not None
