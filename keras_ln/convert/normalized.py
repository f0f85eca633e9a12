"""A model with layer-normalised recurrent layers in place of Keras' own."""

import warnings
from typing import Any

import keras

from keras_ln._keras import layers_within
from keras_ln.convert.clone import Clone
from keras_ln.convert.weights import constraint_on_signs, is_mirrored
from keras_ln.engine.arguments import check_flag
from keras_ln.layers.configs import cloning, config_of, from_config
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.fast import FastLayer
from keras_ln.layers.rnn.forget_bias import LogUniformForgetBias
from keras_ln.layers.rnn.ln_gru import LNGRU, LNGRUCell
from keras_ln.layers.rnn.ln_gru import SITES as GRU_SITES
from keras_ln.layers.rnn.ln_lstm import LNLSTM, LNLSTMCell
from keras_ln.layers.rnn.ln_simple_rnn import LNSimpleRNN, LNSimpleRNNCell
from keras_ln.layers.types import Sites
from keras_ln.ops.norms.cell_norms import check_groups, check_sites

_OURS: dict[Any, Any] = {
    keras.layers.LSTM: LNLSTM,
    keras.layers.LSTMCell: LNLSTMCell,
    keras.layers.GRU: LNGRU,
    keras.layers.GRUCell: LNGRUCell,
    keras.layers.SimpleRNN: LNSimpleRNN,
    keras.layers.SimpleRNNCell: LNSimpleRNNCell,
}
_REPLACED: tuple[Any, ...] = (*_OURS,)
_GRUS = (keras.layers.GRU, keras.layers.GRUCell)
_SIMPLE = (keras.layers.SimpleRNN, keras.layers.SimpleRNNCell)


def with_layer_norm(
    model: Any,
    normalize: Sites | None = None,
    copy_weights: bool = True,
    groups: str = "paper",
) -> Any:
    """A clone of the model in which the recurrent layers are layer-normalised.

    `keras.layers.LSTM`, `GRU` and `SimpleRNN` become `LNLSTM`, `LNGRU` and
    `LNSimpleRNN`, and their cells become `LNLSTMCell`, `LNGRUCell` and
    `LNSimpleRNNCell`: in Bidirectional, RNN, StackedRNNCells, TimeDistributed
    and models inside the model too. All other layers are cloned. Names,
    states, masks and shared layers are preserved: `summary()` shows
    "lstm (LNLSTM)". The model itself does not change. A model without any layer
    to replace is cloned with a warning.

    The clone computes another function, so compile and train it. Training
    starts from the copied weights. Half of the bias of a GRU becomes
    `recurrent_beta` if "recurrent" is normalised, both halves are added if
    "sum" is, and its betas have the
    regularizer and the constraint of the bias.

    With `normalize=()` the clone gives the same predictions as the model, as
    a starting point or a baseline. `SimpleRNN`, which has no sites to leave
    out, is then cloned unchanged. Outputs at masked steps before the first
    valid one are the initial h; Keras gives zeros on TensorFlow and torch.

    Args:
        model: a functional or Sequential model.
        normalize: the sites to normalise, any of "kernel", "recurrent" and
            "state", or "sum" in place of the first two. The default is the
            first three. A layer takes the sites that it has: LNGRU has no
            "state", and LNSimpleRNN normalises the sum of both
            products if "kernel", "recurrent" or "sum" is given.
        copy_weights: copy weights, states of stateful layers and vocabularies,
            also the kernels and biases of the layers that are replaced. An
            update gate of 1 takes the candidate in LNGRU and keeps h in
            Keras, so the signs of its columns change. Gains and shifts start
            at their initial values, random seeds at new ones.
        groups: the gates of LNLSTM and LNGRU that share statistics: "paper",
            "gate" or "all", as in `LNLSTM`.

    Returns:
        The new model. It is not compiled, whether the model is or not: call
        `compile` before `fit`.

    Raises:
        ValueError: if `model` is not functional or Sequential or, with
            `copy_weights`, has no weights yet; for other sites and groups; for
            layers without a counterpart: classes derived from Keras' recurrent
            ones, cells of another kind, layers that have such layers inside,
            and GRU with `reset_after=False`, with an activation of its gates
            for which f(-z) is not 1 - f(z), or with a constraint for which
            f(-w) is not -f(w); for a layer that cannot be cloned, or that is
            inside a Bidirectional layer or a layer of your own and is used
            elsewhere too.

    >>> import keras
    >>> import keras_ln
    >>> model = keras.Sequential(
    ...     [keras.Input((None, 3)), keras.layers.LSTM(4, name="lstm")]
    ... )
    >>> clone = keras_ln.with_layer_norm(model)
    >>> clone.compile("adam", "mse")
    >>> clone.summary(print_fn=lambda text: print("lstm (LNLSTM)" in text))
    True
    """
    if normalize is not None:
        normalize = check_sites(normalize)
    conversion = _Normalized(normalize, copy_weights, check_groups(groups))
    clone = conversion.run(model, _advice(model), copy_weights)
    if not any(isinstance(part, _REPLACED) for part in layers_within(model)):
        warnings.warn(
            "with_layer_norm found no LSTM, GRU or SimpleRNN of Keras in "
            f"{model.name!r}: the clone has the same layers.",
            stacklevel=2,
        )
    return clone


def _advice(model):
    """The end of the error for other objects than models."""
    if ours := _OURS.get(type(model)):
        return (
            " For a single layer use "
            f"keras_ln.{ours.__name__}.from_config(layer.get_config())."
        )
    if isinstance(model, keras.layers.Wrapper | keras.layers.Bidirectional):
        return (
            " Put the layer into a model: keras.Sequential("
            "[keras.Input(...), layer])."
        )
    return " In others write keras_ln.LNLSTM for LSTM, and so on."


class _Normalized(Clone):
    """The clone with normalised layers, and its options."""

    function = "with_layer_norm"
    without_weights = ", or give copy_weights=False"

    def __init__(self, normalize: Any, copy_weights: bool, groups: str) -> None:
        super().__init__()
        self._normalize = normalize
        self._groups = groups
        self._copy_weights = check_flag("copy_weights", copy_weights)

    def replaces(self, layer: Any) -> bool:
        """Whether it is one of Keras' recurrent layers or cells."""
        return type(layer) in _OURS

    def replacement(self, layer: Any) -> Any:
        """The counterpart of Keras' LSTM, GRU or SimpleRNN, or of its cell."""
        config = config_of(layer)
        asked, ours = self._normalize, _OURS[type(layer)]
        if isinstance(layer, _SIMPLE):
            if asked is not None and not {*asked} - {"state"}:
                return from_config(layer, config)
            return cloning(layer, lambda: ours.from_config(config))
        config["groups"] = self._groups
        if isinstance(layer, _GRUS):
            self._check_gru(layer)
            sites = GRU_SITES if asked is None else asked
            config["normalize"] = [s for s in sites if s in LNGRUCell.sites]
            if "recurrent" in sites and layer.use_bias:
                # recurrent_beta takes the place of half of the bias.
                for kind in ("regularizer", "constraint"):
                    config[f"beta_{kind}"] = config[f"bias_{kind}"]
            start = layer.bias_initializer
            if isinstance(start, LogUniformForgetBias):
                config["bias_initializer"] = (
                    LogUniformForgetBias(
                        **start.get_config() | {"cell": "lngru"}
                    )
                    if config["use_bias"]
                    else "zeros"
                )
        elif asked is not None:
            config["normalize"] = asked
        return cloning(layer, lambda: ours.from_config(config))

    def _check_gru(self, layer):
        if not layer.reset_after:
            raise ValueError(
                "with_layer_norm needs reset_after=True: LNGRU normalises the "
                "product with the recurrent kernel, and resets after it. "
                f"Received: {layer.name!r} with reset_after=False. Build the "
                "model with GRU(reset_after=True), Keras' default, and train "
                "it again: those weights belong to another equation."
            )
        if not self._copy_weights:
            return
        gate = layer.recurrent_activation
        if not is_mirrored(gate):
            raise ValueError(
                "with_layer_norm copies the update gate with its sign "
                "changed, which needs f(-z) = 1 - f(z) as for sigmoid. "
                f"Received: {layer.name!r} with recurrent_activation="
                f"{getattr(gate, '__name__', gate)!r}; give "
                "copy_weights=False."
            )
        found = constraint_on_signs(getattr(layer, "cell", layer))
        if found is not None:
            raise ValueError(
                "with_layer_norm copies the update gate with its sign "
                "changed, which needs constraints with f(-w) = -f(w). "
                f"Received: {layer.name!r} with {found}; give "
                "copy_weights=False."
            )

    def check_other(self, layer: Any) -> None:
        """`ValueError` for a recurrent layer without a counterpart."""
        if isinstance(layer, FastLayer):
            why = "needs Keras' own layers: give it keras_ln.to_keras(model)"
            raise self.refusal(layer, why)
        if isinstance(layer, _REPLACED):
            raise self.refusal(
                layer,
                "does not know the computation of a class derived from Keras' "
                "recurrent layers",
                ". Build the model with a layer of keras_ln in its place.",
            )
        known = isinstance(layer, BaseCell | keras.layers.RNN)
        if hasattr(layer, "state_size") and not known:
            raise self.refusal(
                layer,
                "knows the cells of LSTM, GRU and SimpleRNN and the cells of "
                "keras_ln",
            )
        parts = layers_within(layer)
        self.check_inside(layer, [p for p in parts if isinstance(p, _REPLACED)])
