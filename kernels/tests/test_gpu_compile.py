"""NVRTC compiles the kernels of the benchmarks' sizes, and ptxas fits them."""

import pytest
from emulated import DEVICES
from nvrtc_report import reports

from keras_ln_kernels.gpu_plan import CELLS, limits, plans, wider

UNITS = {"A": 256, "B": 512, "C": 400}


def best_plans(device, formats):
    """What is launched on a kind of device, by architecture."""
    of = limits(*DEVICES[device][:3])
    for units in UNITS.values():
        for format in formats:
            for cell in CELLS:
                for backward in (False, True):
                    plan = next(plans(cell, backward, units, format, of))
                    for made in (plan, wider(plan, of)):
                        if made is not None:
                            yield of.architecture, made.kernel


@pytest.mark.parametrize(
    "formats",
    [
        ["tf32", "3xtf32", "bfloat16"],
        # The code of bfloat16, but for two instructions.
        pytest.param(["float16"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_registers(formats):
    """At most 255 of a thread, and little is spilled."""
    jobs = [job for name in DEVICES for job in best_plans(name, formats)]
    found = reports(jobs)
    assert {job[0] for job in found} == {"sm_80", "sm_90a", "sm_100", "sm_120"}
    wrong = [job for job in found if job[2] > 255 or job[3] > 256]
    assert not wrong
