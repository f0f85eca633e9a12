"""Counts what a chip runs, in a program's text as XLA compiled it."""

import re
from typing import NamedTuple

# Names for memory that is there already, and ends of what has begun before.
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
_SCALAR_COUNTER = re.compile(r"^(s32|u32|pred)\[\]")


class Instruction(NamedTuple):
    """One line: its name, its type with the layout, what it does."""

    name: str
    type: str
    opcode: str
    line: str


class Count(NamedTuple):
    """What is launched outside loops over time, and by one of their steps."""

    outside: int
    per_step: int
    transfers_per_step: int
    # Those kernels of a step that leave their result in on-chip memory.
    on_chip: int
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


def count(text, counters_are_kernels):
    """A `Count` of the optimised module `text`.

    Args:
        text: `compiled.as_text()`.
        counters_are_kernels: whether arithmetic of one integer, such as the
            loop's counter, is launched like all else. A TPU does it on its
            scalar core beside the rest.
    """
    found, entry = computations(text)
    outside, steps = [], []

    def walk(name, kernels):
        for instruction in found[name]:
            if instruction.opcode in CALLS:
                inner = steps if instruction.opcode == "while" else kernels
                for called in _CALLED.findall(instruction.line):
                    walk(called, inner)
            elif _runs(instruction, counters_are_kernels):
                kernels.append(instruction)

    walk(entry, outside)
    kernels = [i for i in steps if i.opcode not in TRANSFERS]
    return Count(
        outside=len([i for i in outside if i.opcode not in TRANSFERS]),
        per_step=len(kernels),
        transfers_per_step=len(steps) - len(kernels),
        on_chip=len([i for i in kernels if "S(1)" in i.type]),
        kernels=[f"{i.name} {i.type}" for i in kernels],
    )


def _runs(instruction, counters_are_kernels):
    if instruction.opcode in FREE:
        return False
    if '"AllocateBuffer"' in instruction.line:
        return False
    is_counter = _SCALAR_COUNTER.match(instruction.type)
    return counters_are_kernels or not is_counter
