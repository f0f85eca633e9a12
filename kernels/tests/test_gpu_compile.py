"""NVRTC compiles the kernels of the benchmarks' sizes, and ptxas fits them."""

import pytest
from emulated import DEVICES
from nvrtc_report import reports

from keras_ln_kernels.gpu_plan import CELLS, limits, plans, wider

UNITS = {"A": 256, "B": 512, "C": 400}


def best_plans(device, formats, rows):
    """What is launched on a kind of device, by architecture."""
    of = limits(*DEVICES[device][:3])
    for units in UNITS.values():
        for format in formats:
            for cell in CELLS:
                for backward in (False, True):
                    plan = next(plans(cell, backward, units, format, of))
                    if rows == 16:
                        plan = wider(plan, of)
                    if plan is not None:
                        yield of.architecture, plan.kernel


@pytest.mark.parametrize(
    ("formats", "rows", "devices"),
    [
        (["tf32", "3xtf32", "bfloat16"], 8, [*DEVICES]),
        (["tf32", "3xtf32"], 16, ["H100"]),
        # The code of bfloat16, but for two instructions.
        pytest.param(["float16"], 8, [*DEVICES], marks=pytest.mark.slow),
        pytest.param(
            *(["tf32", "3xtf32", "bfloat16", "float16"], 16, [*DEVICES]),
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_registers(formats, rows, devices):
    """At most 255 of a thread, and little is spilled."""
    jobs = [job for d in devices for job in best_plans(d, formats, rows)]
    found = reports(jobs)
    known = {limits(*DEVICES[name][:3]).architecture for name in devices}
    assert {job[0] for job in found} == known
    wrong = [job for job in found if job[2] > 255 or job[3] > 256]
    assert not wrong
