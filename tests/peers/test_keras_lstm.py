"""Keras' test cases of the LSTM and of layer normalisation, with our layers.

What they expect are literals in Keras' own files.
"""

import keras
import pytest
from peers import keras_cases

import keras_ln

pytestmark = pytest.mark.peers


class TestLNLSTM(
    keras_cases.load("rnn.lstm_test", LSTM=keras_cases.LSTM).LSTMTest
):
    """All of them; each says `layers.LSTM` and gets LNLSTM(normalize=())."""


class TestBNLSTM(
    keras_cases.load("rnn.lstm_test", LSTM=keras_cases.BNLSTM).LSTMTest
):
    """All of them."""


class TestWNLSTM(
    keras_cases.load("rnn.lstm_test", LSTM=keras_cases.WNLSTM).LSTMTest
):
    """All that count no weights: its gains are two more."""

    test_basics = None


class TestStackedLSTMCells(
    keras_cases.load(
        "rnn.stacked_rnn_cells_test", LSTMCell=keras_cases.LSTMCell
    ).StackedRNNTest
):
    """Those with LSTM cells; the others are in test_keras_replay.py."""


@keras.saving.register_keras_serializable("peers")
class LayerNormalization(keras_ln.LayerNormalization):
    """Ours with the epsilon of Keras."""

    def __init__(self, axis=-1, epsilon=1e-3, **kwargs):
        super().__init__(axis=axis, epsilon=epsilon, **kwargs)


class TestLayerNormalization(
    keras_cases.load(
        "normalization.layer_normalization_test",
        LayerNormalization=LayerNormalization,
    ).LayerNormalizationTest
):
    """All but RMS scaling, which is another layer of Keras too."""

    def run_layer_test(self, layer_class, init_kwargs, **kwargs):
        if "rms_scaling" in init_kwargs:
            with pytest.raises(ValueError, match="rms_scaling"):
                layer_class(**init_kwargs)
            return
        super().run_layer_test(layer_class, init_kwargs, **kwargs)

    test_output_with_rms_scaling = None

    def test_invalid_axis(self):
        """The same error in words of ours."""
        with pytest.raises(TypeError, match="`axis` must be an integer or"):
            LayerNormalization(axis={"axis": -1})
