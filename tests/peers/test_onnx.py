"""Models exported to ONNX give the same numbers in the ONNX runtime."""

import export_models
import numpy as np
import pytest
from backend_gradients import BACKEND
from export_models import ROUNDING

from keras_ln import ops

pytestmark = pytest.mark.peers

if BACKEND == "tensorflow":

    def session_of(path):
        # Here, as the file is imported where there is no such package.
        import onnxruntime

        return onnxruntime.InferenceSession(path)

    @pytest.mark.parametrize("name", export_models.NAMES)
    def test_onnx(name, tmp_path):
        """Any batch, any length, any mask."""
        model = export_models.model(name)
        path = tmp_path / "model.onnx"
        with ops.portable():
            model.export(path, format="onnx", verbose=False)
        session = session_of(path)
        (given,) = session.get_inputs()
        inputs = export_models.samples(model)
        results = export_models.outputs(model, inputs)
        for x, expected in zip(inputs, results, strict=True):
            (found,) = session.run(None, {given.name: x})
            np.testing.assert_allclose(found, expected, **ROUNDING)

    def test_what_happens_without_portable(tmp_path):
        """If this fails, the context is not needed any more."""
        model = export_models.model("LayerNormalization")
        path = tmp_path / "model.onnx"
        model.export(path, format="onnx", verbose=False)
        with pytest.raises(Exception, match="PartitionedCall"):
            session_of(path)
