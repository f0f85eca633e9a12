"""Counts the kernels that a chip runs, in the text of XLA's program."""

import re
from typing import NamedTuple

# Names for existing memory, and ends of operations that began before.
FREE = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "copy-done",
    "slice-done",
    "async-update",
    "async-done",
}
TRANSFERS = {"copy-start", "slice-start", "async-start"}
CALLS = {"call", "conditional", "while"}

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\("
)
_CALLED = re.compile(
    r"(?:body|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_SCALAR_COUNTER = re.compile(r"^(s32|u32|pred)\[\]")


class Instruction(NamedTuple):
    """One line: its name, its type with the layout, its operation."""

    name: str
    type: str
    opcode: str
    line: str


class Count(NamedTuple):
    """Launches outside of the loops over time, and per step of the loops.

    An iteration of a loop may run several steps, so the numbers per step are
    averages.
    """

    outside: int
    per_step: float
    # The kernels of a step that leave their results in on-chip memory.
    on_chip: float
    # Of one iteration.
    kernels: list[str]


def computations(text):
    """({name: its instructions}, name of the first one that runs)."""
    found, entry, own = {}, None, None
    for line in text.splitlines():
        if opening := _COMPUTATION.match(line):
            own = found.setdefault(opening[2], [])
            entry = opening[2] if opening[1] else entry
        elif own is not None and (match := _INSTRUCTION.match(line)):
            own.append(Instruction(match[1], match[2], match[3], line))
    if entry is None:
        raise ValueError("The text holds no ENTRY computation.")
    return found, entry


def count(text, counters_are_kernels, steps):
    """A `Count` of the optimised module `text`.

    Args:
        text: `compiled.as_text()`.
        counters_are_kernels: whether arithmetic of one integer, such as the
            loop's counter, is launched like other operations. A TPU runs it
            on its scalar core at the same time.
        steps: the number of time steps; all loops together run them once.
    """
    found, entry = computations(text)
    outside, inside = [], []

    def walk(name, kernels, trips):
        for instruction in found[name]:
            if instruction.opcode in CALLS:
                inner = (kernels, trips)
                if instruction.opcode == "while":
                    inner = (inside, trips * _trips(instruction, steps))
                for called in _CALLED.findall(instruction.line):
                    walk(called, *inner)
            elif _runs(instruction, counters_are_kernels):
                kernels.append((instruction, trips))

    def per_step(those):
        return round(sum(trips for _, trips in those) / steps, 2)

    walk(entry, outside, 1)
    kernels = [k for k in inside if k[0].opcode not in TRANSFERS]
    return Count(
        outside=len([k for k in outside if k[0].opcode not in TRANSFERS]),
        per_step=per_step(kernels),
        on_chip=per_step([k for k in kernels if "S(1)" in k[0].type]),
        kernels=[f"{i.name} {i.type}" for i, _ in kernels],
    )


def _trips(loop, steps):
    # A TPU's programs do not say it. Their loops run one step at a time.
    found = _TRIPS.search(loop.line)
    return int(found[1]) if found else steps


def _runs(instruction, counters_are_kernels):
    if instruction.opcode in FREE:
        return False
    if '"AllocateBuffer"' in instruction.line:
        return False
    is_counter = _SCALAR_COUNTER.match(instruction.type)
    return counters_are_kernels or not is_counter
