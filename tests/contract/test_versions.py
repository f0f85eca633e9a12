"""What stands in for names that some versions of Keras and JAX have not."""

from types import SimpleNamespace

import numpy as np
import pytest
from backend_gradients import BACKEND

import keras_ln
from keras_ln import _keras


def test_symbolic_tensors_before_ragged():
    assert _keras.layout(SimpleNamespace(sparse=False)) is None
    assert _keras.layout(SimpleNamespace(sparse=True)) == "sparse"
    both = SimpleNamespace(sparse=False, ragged=True)
    assert _keras.layout(both) == "ragged"


if BACKEND == "jax":
    import jax

    from keras_ln.backend import jax as backend

    # Types as JAX 0.10 and 0.6 have them, and as they were before.
    NEW = SimpleNamespace(
        manual_axis_type=SimpleNamespace(varying=frozenset({"data"}))
    )
    KINDS = [NEW, SimpleNamespace(vma=frozenset({"data"}))]

    @pytest.mark.every_backend
    @pytest.mark.parametrize("kind", KINDS)
    def test_shard_map_in_versions(monkeypatch, kind):
        # The type of 1 says that it varies along the axis, that of 0 does not.
        def typeof(array):
            return kind if array else SimpleNamespace()

        monkeypatch.setattr(jax, "typeof", typeof, raising=False)
        calls = []

        def pvary(array, axes):
            calls.append((array, axes))
            return array

        monkeypatch.delattr(jax.lax, "pcast", raising=False)
        monkeypatch.setattr(jax.lax, "pvary", pvary, raising=False)
        assert backend._varying((0, {"a": 1})) == {"data"}
        assert backend._vary((0, 0), {"data"}) == (0, 0)
        assert calls == 2 * [(0, ("data",))]

    @pytest.mark.every_backend
    def test_before_types(monkeypatch):
        monkeypatch.delattr(jax, "typeof", raising=False)
        assert backend._varying(np.ones(2)) == set()
        y = keras_ln.LNSimpleRNN(2)(np.ones((1, 2, 3), "float32"))
        assert y.shape == (1, 2)
