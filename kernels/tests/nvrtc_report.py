"""What NVRTC and ptxas say of kernels, for GPUs that are not there."""

import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from keras_ln_kernels import nvrtc


def report(job):
    """The architecture and kernel; of a thread registers, and bytes of memory.

    The bytes are those that are spilled, and, if none are, those of arrays.
    """
    architecture, kernel = job
    by, reason = nvrtc.compiler(13)
    if by is None:
        raise RuntimeError(reason)
    log = by.compile(kernel, architecture, ["--ptxas-options=-v"]).log
    (registers,) = re.findall(r"Used (\d+) registers", log)
    spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    (stack,) = re.findall(r"(\d+) bytes stack frame", log)
    of_spills = max(map(int, spilled))
    arrays = 0 if of_spills else int(stack)
    return architecture, kernel, int(registers), of_spills, arrays


def reports(jobs, processes=2):
    """Those of all jobs."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        return list(pool.map(report, jobs, chunksize=4))
