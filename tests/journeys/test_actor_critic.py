"""A recurrent policy learns to balance a pole whose speed it does not see."""

import os
import subprocess
import sys

import pytest
from docs.measured import ROOT
from journeys.twins import BACKEND

pytestmark = [pytest.mark.full, pytest.mark.every_backend]

CODE = """
import jax
from cartpole import train
from cartpole_model import start
states = jax.vmap(start)(jax.random.split(jax.random.key(0), 99))[:, :4]
assert states.min() < -0.04 and 0.04 < states.max() <= 0.05
lengths = train(True, 0, updates=400, environments=32, steps=64, units=32)
print(lengths)
assert lengths[0] < 50 and sum(lengths[-3:]) / 3 > 100
"""

if BACKEND == "jax":

    def test_it_learns(tmp_path):
        """Without memory it stays below 50 steps."""
        # As users run it: the tests' JAX has float64.
        subprocess.run(
            [sys.executable, "-c", CODE],
            cwd=tmp_path,
            env=os.environ
            | {"JAX_ENABLE_X64": "0", "PYTHONPATH": str(ROOT / "examples")},
            check=True,
        )
