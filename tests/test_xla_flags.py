"""What XLA is told in the tests: nothing that ends the process."""

import pytest
import xla_flags


@pytest.mark.parametrize(
    "versions, known",
    [
        ({}, True),
        ({"jaxlib": "0.4.38"}, False),
        ({"jaxlib": "0.5.1"}, False),
        ({"jaxlib": "0.5.3"}, True),
        ({"jaxlib": "0.11.0"}, True),
        ({"jaxlib": "0.11.1"}, False),
        ({"jaxlib": "0.12.0.1"}, False),
        ({"tensorflow": "2.19.1"}, False),
        ({"tensorflow-cpu": "2.20.0"}, True),
        ({"tensorflow": "2.22.0rc0"}, False),
        ({"jaxlib": "0.10.2", "tensorflow": "2.21.0"}, True),
        ({"jaxlib": "0.10.2", "tensorflow": "2.19.0"}, False),
        ({"jaxlib": "0.12.0", "tensorflow": "2.21.0"}, False),
    ],
)
def test_a_flag_is_set_where_all_know_it(versions, known):
    flags = xla_flags.flags(versions)
    assert (xla_flags.QUICK_TO_COMPILE in flags) is known
    assert xla_flags.ALWAYS in flags
