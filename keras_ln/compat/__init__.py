"""Loads weights of other libraries' cells into layers of keras_ln.

The other library need not be installed: its weights come as arrays. The
`*_arguments` functions turn its settings into arguments of keras_ln, so that
the layer computes the same results; the `load_*` functions set the weights.

| other layer                              | keras_ln                       |
|------------------------------------------|--------------------------------|
| TensorFlow-Addons LayerNormLSTMCell      | LNLSTM with                    |
|                                          | `carry_normalized_state=True`, |
|                                          | `epsilon=1e-3`                 |
| TensorFlow-Addons LayerNormSimpleRNNCell | LNSimpleRNN                    |
| haste LayerNormLSTM                      | LNLSTM with `center=False` and |
|                                          | haste's `zoneout`              |
| haste LayerNormGRU                       | LNGRU with `groups="all"`,     |
|                                          | `center=False`,                |
|                                          | `use_bias=True` and `zoneout`  |
| TensorFlow 1 LayerNormBasicLSTMCell      | LNLSTM with `groups="gate"`,   |
|                                          | the sites "sum" and "state"    |
| torch.nn.LSTM, torch.nn.GRU              | LNLSTM, LNGRU with             |
|                                          | `normalize=()`, the latter     |
|                                          | with `use_bias=True`           |
| fastrnns LayerNormLSTM, of torch         | LNLSTM with                    |
|                                          | `carry_normalized_state=True`, |
|                                          | `use_bias=False`               |
"""

from keras_ln.compat.haste import load_haste_gru, load_haste_lstm
from keras_ln.compat.pytorch import (
    load_fastrnns_lstm,
    load_torch_gru,
    load_torch_lstm,
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
    "keras_2_hard_sigmoid",
    "load_fastrnns_lstm",
    "load_haste_gru",
    "load_haste_lstm",
    "load_tf1_lstm",
    "load_tfa_lstm",
    "load_tfa_simple_rnn",
    "load_torch_gru",
    "load_torch_lstm",
    "tfa_lstm_arguments",
    "tfa_simple_rnn_arguments",
]
