"""Loads weights of other libraries' cells into layers of keras_ln.

The other library need not be installed: its weights come as arrays. The
`*_arguments` functions turn its settings into arguments of keras_ln, so that
the layer computes the same results; the `load_*` functions set the weights.

Each function's docstring says which layer and arguments compute the same.
"""

from keras_ln.compat.dreamer import (
    dreamer_beta,
    dreamer_gru_arguments,
    load_dreamer_gru,
)
from keras_ln.compat.haste import load_haste_gru, load_haste_lstm
from keras_ln.compat.pytorch import (
    load_fastrnns_lstm,
    load_torch_gru,
    load_torch_lstm,
)
from keras_ln.compat.speech import (
    icefall_lstm_arguments,
    load_icefall_lstm,
    load_torchaudio_lstm,
    torchaudio_lstm_arguments,
)
from keras_ln.compat.tensorflow_1 import load_tf1_lstm
from keras_ln.compat.tensorflow_addons import (
    keras_2_hard_sigmoid,
    load_tfa_lstm,
    load_tfa_simple_rnn,
    tfa_lstm_arguments,
    tfa_simple_rnn_arguments,
)

__all__ = [
    "dreamer_beta",
    "dreamer_gru_arguments",
    "icefall_lstm_arguments",
    "keras_2_hard_sigmoid",
    "load_dreamer_gru",
    "load_fastrnns_lstm",
    "load_haste_gru",
    "load_haste_lstm",
    "load_icefall_lstm",
    "load_tf1_lstm",
    "load_tfa_lstm",
    "load_tfa_simple_rnn",
    "load_torch_gru",
    "load_torch_lstm",
    "load_torchaudio_lstm",
    "tfa_lstm_arguments",
    "tfa_simple_rnn_arguments",
    "torchaudio_lstm_arguments",
]
