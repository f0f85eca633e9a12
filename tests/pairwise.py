"""Choose few combinations that hold every pair of settings.

Faults of a layer come from one option or from two that meet. All pairs are
a few dozen cases where the full product is thousands.
"""

import itertools

import keras
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
    """The cases as parameters, some of them for the full run.

    Torch, which is the fastest, runs them all, and TensorFlow and JAX every
    eighth, not the same ones; the full run compiles all the others.
    """
    every, first = {"torch": (1, 0), "tensorflow": (8, 0), "jax": (8, 4)}[
        keras.backend.backend()
    ]
    return [
        pytest.param(
            case,
            id=case_id(case),
            marks=[] if k % every == first else [pytest.mark.full],
        )
        for k, case in enumerate(cases)
    ]


def full_but(names, cases):
    """The cases as parameters, for the full run but for some.

    For what is compiled, which torch does not do: there all are quick.

    Args:
        names: of the rows whose cases the quick run has.
        cases: rows, or tuples of a row and something else.
    """

    def parameter(case):
        values = case if isinstance(case, tuple) else (case,)
        quick = keras.backend.backend() == "torch" or values[0].name in names
        return pytest.param(
            *values,
            id="-".join(map(str, values)),
            marks=[] if quick else [pytest.mark.full],
        )

    return [parameter(case) for case in cases]


def case_id(case):
    """A readable test id of one combination."""
    return "-".join(f"{key}={_short(value)}" for key, value in case.items())


def _short(value):
    if isinstance(value, list | tuple):
        return "+".join(map(str, value)) or "nothing"
    return str(value)
