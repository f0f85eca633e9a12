"""Choose few combinations that hold every pair of settings.

Faults of a layer come from one option or from two that meet. All pairs are
a few dozen cases where the full product is thousands.
"""

import itertools

import pytest


def pairwise(factors):
    """Combinations of `factors`, name -> values, as a list of dictionaries.

    Every value of every factor meets every value of every other one in at
    least one of them. Greedy and deterministic.
    """
    names = list(factors)
    missing = {
        frozenset([(a, i), (b, j)])
        for a, b in itertools.combinations(names, 2)
        for i in range(len(factors[a]))
        for j in range(len(factors[b]))
    }
    cases = []
    while missing:
        # Start from a pair that is missing, so that every round makes one.
        chosen = dict(min(missing, key=sorted))
        for name in names:
            if name not in chosen:
                chosen[name] = max(
                    range(len(factors[name])),
                    key=lambda i, name=name: _gain(chosen, name, i, missing),
                )
        pairs = itertools.combinations(chosen.items(), 2)
        missing -= {frozenset(pair) for pair in pairs}
        cases.append({name: factors[name][chosen[name]] for name in names})
    return cases


def _gain(chosen, name, index, missing):
    """Missing pairs that this value would make with the chosen ones."""
    return sum(
        frozenset([(name, index), other]) in missing for other in chosen.items()
    )


def parameters(cases):
    """The cases as parameters; those marked `every_backend` hold every value.

    A case is marked where one of its values comes first; with `name`, the row,
    where it comes first for the row.
    """
    seen, found = set(), []
    for case in cases:
        values = {(case.get("name"), *map(str, pair)) for pair in case.items()}
        marks = [pytest.mark.every_backend] if values - seen else []
        seen |= values
        name = "-".join(f"{key}={_short(value)}" for key, value in case.items())
        found.append(pytest.param(case, id=name, marks=marks))
    return found


def one_everywhere(rows, *names):
    """The rows as parameters, of which the named are marked `every_backend`."""
    return [
        pytest.param(
            row,
            id=str(row),
            marks=[pytest.mark.every_backend] if row.name in names else [],
        )
        for row in rows
    ]


def _short(value):
    if isinstance(value, list | tuple):
        return "+".join(map(str, value)) or "nothing"
    return str(value)
