"""How a problem becomes launches of GPU kernels: a table with its reasons."""

import ctypes
from collections.abc import Iterator
from typing import NamedTuple

from keras_ln_kernels.gpu_structs import Shape, functions

CELLS = {"lstm": 0, "gru": 1}
FORMATS = {"tf32": 0, "bfloat16": 1, "float16": 2, "3xtf32": 3}
MOST_UNITS = 512
# Of a group of blocks: the n of the hardware's matrix product, or twice that.
ROWS, MORE_ROWS = 8, 16


class Limits(NamedTuple):
    """The limits of a kind of device."""

    capability: int
    architecture: str
    shared_bytes: int  # of a block
    largest_cluster: int  # 0: no clusters
    cooperative: bool = True  # whether blocks can meet in global memory


class Plan(NamedTuple):
    """One instance of a kernel, and how it is launched."""

    cell: str
    backward: bool
    units: int
    blocks: int  # of a group
    kept: int  # chunks of a warp's matrix that are in registers
    format: str
    cluster: bool  # or blocks that meet in global memory
    threads: int
    shared_bytes: int
    box_bytes: int
    rows: int = ROWS  # of the batch, which a group takes

    @property
    def number(self) -> int:
        """The kernel's in the C interface."""
        return CELLS[self.cell] + 2 * self.backward

    @property
    def kernel(self) -> str:
        """The instance's name in C++."""
        name = f"{self.cell}_{'backward' if self.backward else 'forward'}"
        cluster = "true" if self.cluster else "false"
        return (
            f"{name}<{self.units}, {self.blocks}, {self.rows}, {self.kept}, "
            f"{FORMATS[self.format]}, {cluster}>"
        )

    def workspace(self, groups: int) -> dict[str, int]:
        """Bytes of the arrays "exchange" and "counters", if it takes them.

        Groups that run later meet in the same memory.
        """
        if self.cluster:
            return {}
        boxes = groups * (self.blocks if self.backward else 1)
        return {"exchange": boxes * self.box_bytes, "counters": groups * 128}


def limits(
    major: int,
    minor: int,
    shared_bytes: int,
    clusters: bool = True,
    cooperative: bool = True,
) -> Limits:
    """The limits of a device of compute capability `major.minor`."""
    # Only "a" in the name gives Hopper's instructions; clusters of more than 8
    # blocks are for the large chips.
    suffix = "a" if (major, minor) == (9, 0) else ""
    cluster = {8: 0, 9: 16, 10: 16, 11: 16}.get(major, 8) * clusters
    number = 10 * major + minor
    name = f"sm_{number}{suffix}"
    return Limits(number, name, shared_bytes, cluster, cooperative)


def planned(
    cell: str,
    backward: bool,
    units: int,
    blocks: int,
    kept: int,
    format: str,
    cluster: bool,
    rows: int = ROWS,
) -> Plan:
    """This instance of a kernel, whatever it fits."""
    shape = Shape(
        kernel=CELLS[cell] + 2 * backward,
        units=units,
        blocks=blocks,
        rows=rows,
        kept=kept,
        format=FORMATS[format],
        cluster=cluster,
    )
    functions().kln_gpu_shape(ctypes.byref(shape))
    return Plan(
        *(cell, backward, units, blocks, kept, format, cluster),
        *(shape.threads, shape.shared_bytes, shape.box_bytes, rows),
    )


def plans(
    cell: str, backward: bool, units: int, format: str, of: Limits
) -> Iterator[Plan]:
    """The instances that fit, the best first.

    - A block has 32 units: 8 warps of 255 registers, all that a processor has.
    - Clusters meet fastest. Of a number of blocks that is no power of two, the
      hardware may have none; the next power of two follows.
    - Blocks that meet in global memory are for GPUs without clusters, or with
      smaller ones. They have 32 units, or 16 if shared memory is small.
    """
    if units > MOST_UNITS:
        return
    blocks = -(-units // 32)
    power = 1 << (blocks - 1).bit_length()
    groups = [(n, True) for n in dict.fromkeys((blocks, power))]
    groups += [(blocks, False), (-(-units // 16), False)]
    for n, cluster in groups:
        if n > of.largest_cluster if cluster else not of.cooperative:
            continue
        plan = _fitting(cell, backward, units, n, format, cluster, ROWS, of)
        if plan is not None:
            yield plan


def wider(plan: Plan, of: Limits) -> Plan | None:
    """The instance whose groups take 16 rows, else the same, if it fits.

    None if twice the rows take more than twice the time: backward with more
    than 8 blocks, because of the messages (16 rows take 8.0 us a step on an
    H200, and 8 rows 2.9 us).
    """
    cell, backward, units, blocks, _, format, cluster, *_ = plan
    if backward and blocks > 8:
        return None
    rows = MORE_ROWS
    return _fitting(cell, backward, units, blocks, format, cluster, rows, of)


def _fitting(
    cell: str,
    backward: bool,
    units: int,
    blocks: int,
    format: str,
    cluster: bool,
    rows: int,
    of: Limits,
) -> Plan | None:
    """The instance that spills least among those that fit shared memory.

    128 registers of a thread hold the matrix, the rest is in shared memory.
    Backward that would spill in formats other than TF32, and 96 do if the rest
    fits: a split operand takes registers of its own, and 16 bits load more at a
    time. With 16 rows more spill too much there; forward an LSTM of 512 units
    in TF32 needs 144, which spill nothing.
    """
    tiles = {"lstm": 2, "gru": 3}[cell]
    if backward:
        tiles = -(-blocks * (-(-units // (8 * blocks)) * 8) // 128)
    registers = (96, 128) if backward and format != "tf32" else (128, 144)
    if backward and rows == MORE_ROWS:
        registers = registers[:1]
    for most in registers:
        kept = max(1, most // (8 * tiles))
        plan = planned(
            cell, backward, units, blocks, kept, format, cluster, rows
        )
        if plan.shared_bytes <= of.shared_bytes:
            return plan
    return None
