"""Every normalisation of a script's model starts from --gain."""

import numpy as np
import pytest
import scripts
from arrays import to_numpy
from common import cli

# The weights `gamma` of a kind of a script, and what they are without --gain.
CASES = [
    ("attentive_reader", "layer", 2 * 3, 1.0),
    ("attentive_reader", "batch", 2 * 3, 0.1),
    ("attentive_reader", "batch-everywhere", 2 * 3 + 5, 0.1),
    ("convolutional_networks", "layer", 5, 1.0),
    ("convolutional_networks", "layer-channels", 5, 1.0),
    ("convolutional_networks", "batch", 5, 1.0),
    ("draw_mnist", "layer", 2, 1.0),
    ("handwriting_generation", "layer", 3 * 3, 1.0),
    ("sequential_mnist", "layer", 3, 1.0),
    ("sequential_mnist", "batch", 3, 0.1),
]


@pytest.mark.parametrize("name, norm, count, own", CASES)
def test_all_normalisations_start_from_the_gain(name, norm, count, own):
    task = cli.find(name)
    for flags, start in ((), own), (("--gain", "0.25"), 0.25):
        plan = scripts.plan(task, "--smoke", "--norm", norm, *flags)
        model = task.make_task(plan, task.load_data(plan)).model
        gains = [w for w in model.weights if w.name.endswith("gamma")]
        assert len(gains) == count
        for weight in gains:
            np.testing.assert_array_equal(to_numpy(weight), np.float32(start))
