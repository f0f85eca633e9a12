"""The cases of every layer against its oracle, by the kernels that run it.

Scan and loop have them in conformance/test_against_oracle.py.
"""

import gpu_emulation
import pytest
from backend_gradients import BACKEND
from conformance.test_against_oracle import CASES, problem_of
from descriptors import BY_NAME
from pairwise import parameters

from keras_ln import ops

pytestmark = pytest.mark.kernels
# What no kernel runs is for the others.
FIXED = {"activation": "tanh", "unroll": False, "use_fused": "auto"}
FIXED |= {"on_cpu": True}
# Those for GPUs have fewer layers and options. The emulation has few sizes.
PLAIN = {"drops": False, "zones": "nothing", "sizes": (3, 4, 2, 3)}
VARIED = ("use_bias", "center", "normalize", "use_sum_bias", "projection")
ON_GPUS = {
    name: PLAIN
    | {n: v[0] for n, v in BY_NAME[name].options.items() if n not in VARIED}
    for name in ("WNLSTM", "LNGRU", "LNLSTM")
}


def distinct(cases):
    """The cases, each once, marked for TensorFlow and JAX as `parameters`."""
    return parameters([dict(c) for c in dict.fromkeys(cases)])


# A projection with more than this is the loop's.
PROJECTED = {"drops": False, "zones": "nothing", "given_resets": False}
PROJECTED |= {"mask": "none", "sizes": (3, 4, 2, 3)}


def frozen(case, **fixed):
    fixed |= PROJECTED if case.get("projection") else {}
    return tuple((case | FIXED | fixed).items())


NATIVE = distinct(
    frozen(case)
    for case in CASES
    if case["name"] != "BNLSTM"
    and (
        "sum" in case.get("normalize", ())
        or (case.get("groups", "paper"), case["name"])
        in (("paper", case["name"]), ("all", "LNLSTM"))
    )
)
CUDA = distinct(
    frozen(case, **ON_GPUS[case["name"]])
    for case in CASES
    if case["name"] in ON_GPUS and "sum" not in case.get("normalize", ())
)


@pytest.mark.parametrize("case", NATIVE)
def test_on_cpus(case, calls):
    problem, known = problem_of(case)
    layer = problem.layer()
    chosen, reasons = ops.implementation(layer)
    assert chosen == "native", reasons
    problem.check(layer, oracle=known, compiled=True)
    # JAX looks at the function itself before it takes its rule.
    assert [call.backward for call in calls[-2:]] == [False, True]


if BACKEND != "tensorflow":  # Which calls none.

    @pytest.mark.parametrize("case", CUDA)
    def test_on_gpus(case, monkeypatch):
        driver = gpu_emulation.use(monkeypatch)
        problem, known = problem_of(case)
        layer = problem.layer(dtype="float32")
        assert ops.implementation(layer)[0] == "cuda"
        # Products of float32 split in two of TF32, and sums in float32.
        close = {"rtol": 2e-5, "atol": 2e-5}
        problem.check(layer, close, oracle=known)
        log = [line for line in driver.log() if line[0] in ("cluster", "grid")]
        assert len(log) >= 2
