"""A recurrent policy learns to balance a pole whose speed it does not see.

The program is that of the page Rollouts with JAX.
"""

import os
import subprocess
import sys

import pytest
from journeys.twins import BACKEND

from docs import pages

pytestmark = [pytest.mark.full, pytest.mark.every_backend]

if BACKEND == "jax":

    def test_it_learns(tmp_path):
        """Without memory it stays below 50 steps."""
        blocks = pages.pages()["docs/guides/rollouts.md"]
        code = "\n".join(code for _, code, _ in blocks)
        code += """
lengths = train(0, updates=400)
print(lengths.round())
assert lengths[0] < 50 and lengths[-3:].mean() > 100
"""
        # As users run it: the tests' JAX has float64.
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=os.environ | {"JAX_ENABLE_X64": "0"},
            check=True,
        )
