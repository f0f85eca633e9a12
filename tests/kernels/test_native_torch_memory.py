"""Memory of the kernels' residuals on torch, which serves again."""

import weakref

import keras
import pytest
from backend_gradients import BACKEND

import keras_ln
from keras_ln._keras import of_session

pytestmark = [pytest.mark.kernels, pytest.mark.every_backend]

if BACKEND == "torch":
    import torch

    from keras_ln.backend import native

    def made():
        layer = keras_ln.LNLSTM(16)
        layer.build((2, 4, 3))
        return layer

    def kept_pieces():
        return of_session("pieces", native.Pieces)

    def addresses_in(pieces):
        return {piece.data_ptr() for piece in pieces._pieces}

    def test_memory_of_residuals_serves_again():
        """But not while a graph holds it."""
        layer, given = made(), torch.randn(2, 4, 3)

        def run():
            return [layer(given, training=True) for _ in range(3)]

        keras.backend.clear_session()
        pieces = kept_pieces()
        graphs = run()
        assert len(pieces) == 0
        weight = layer.trainable_variables[0].value
        found = [torch.autograd.grad(g.sum(), weight)[0] for g in graphs]
        torch.testing.assert_close(found[0], found[2], rtol=0, atol=0)
        del graphs
        assert len(pieces) == 3
        addresses = addresses_in(pieces)
        graphs = run()
        assert len(pieces) == 0
        del graphs
        assert addresses_in(pieces) == addresses

    def test_memory_of_residuals_is_bounded(monkeypatch):
        """By its bytes, and freed with the session."""
        keras.backend.clear_session()
        layer = made()
        graph = layer(torch.randn(2, 4, 3), training=True)
        del graph
        one = kept_pieces().bytes
        monkeypatch.setattr(native, "MOST_BYTES", 5 * one // 2)
        graphs = [layer(torch.randn(2, 4, 3), training=True) for _ in range(6)]
        assert not kept_pieces()
        del graphs
        assert len(kept_pieces()) == 2
        graph = layer(torch.randn(40, 4, 3), training=True)
        del graph
        # Too large for any to stay.
        assert not kept_pieces()

        graph = layer(torch.randn(2, 4, 3), training=True)
        held = layer(torch.randn(2, 4, 3), training=True)
        del graph
        piece = weakref.ref(kept_pieces()._pieces[0])
        keras.backend.clear_session()
        assert piece() is None
        del held
        assert not kept_pieces()
