"""The choice of combinations really holds every pair."""

import itertools

from pairwise import case_id, pairwise

FACTORS = {
    "mask": ("none", "left", "all"),
    "back": (False, True),
    "sites": ((), ("kernel",), ("kernel", "state")),
    "bias": (False, True),
}


def test_every_pair_is_there():
    cases = pairwise(FACTORS)
    for a, b in itertools.combinations(FACTORS, 2):
        for pair in itertools.product(FACTORS[a], FACTORS[b]):
            assert any((case[a], case[b]) == pair for case in cases)


def test_far_fewer_than_all():
    assert len(pairwise(FACTORS)) <= 12 < 3 * 2 * 3 * 2


def test_ids_differ():
    ids = [case_id(case) for case in pairwise(FACTORS)]
    assert len(set(ids)) == len(ids)
