"""The golden files: float64 values of independent implementations.

That of zoneout was made with torch's autodiff; its cases hold the choices,
`zoneout` and `cell_zoneout`, True where a unit keeps its state. So was that of
sequences, which ran every sequence of a row by itself: `flags` are True where
one begins, and `reset0` and `reset1` are the states there.
"""

import functools
import pathlib

import numpy as np

GOLDEN = pathlib.Path(__file__).parent / "golden"
PATHS = [
    GOLDEN / f"{name}.npz" for name in ("recurrence", "zoneout", "sequences")
]


@functools.lru_cache(maxsize=1)
def _cases():
    cases = {}
    for path in PATHS:
        with np.load(path) as file:
            for key in file.files:
                case, name = key.split("/")
                cases.setdefault(case, {})[name] = file[key]
    return cases


def case(name):
    """The arrays of one case, by name."""
    return dict(_cases()[name])


def case_names():
    """Every case of the files."""
    return sorted(_cases())


def weights(name):
    """The weights of one case, without their prefix."""
    return with_prefix(name, "w_")


def states(name):
    """The initial states of one case.

    bnlstm_infer_longer starts from the first rows of bnlstm_train's.
    """
    if name == "bnlstm_infer_longer":
        rows = len(_cases()[name]["x"])
        return [state[:rows] for state in states("bnlstm_train")]
    return list(with_prefix(name, "state").values())


def resets(name):
    """Flags and the states after them; None where the case has none."""
    flags = _cases()[name].get("flags")
    return flags, list(with_prefix(name, "reset").values()) or None


def choices(name):
    """Of zoneout, by argument; none where the case is one without it."""
    return {
        key: value for key, value in _cases()[name].items() if "zoneout" in key
    }


def final_states(name):
    """The final states of one case."""
    return list(with_prefix(name, "final").values())


def with_prefix(name, prefix):
    """The arrays of one case whose name starts so, without the prefix."""
    return {
        key.removeprefix(prefix): value
        for key, value in sorted(_cases()[name].items())
        if key.startswith(prefix)
    }


def moving_statistics():
    """Those of bnlstm_infer_longer: the batch statistics of bnlstm_train."""
    data = _cases()["bnlstm_train"]
    return {
        f"{site}_moving_{long}": data[f"batch_{short}_{site}"]
        for site in ("kernel", "recurrent", "state")
        for short, long in (("mean", "mean"), ("var", "variance"))
    }
