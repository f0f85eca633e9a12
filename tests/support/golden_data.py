"""The golden files: float64 values of independent implementations.

That of zoneout was made with torch's autodiff; its cases hold the choices,
`zoneout` and `cell_zoneout`, True where a unit keeps its state. So was that of
sequences, which ran every sequence of a row by itself: `flags` are True where
one begins, and `reset0` and `reset1` are the states there.
"""

import functools
import pathlib

import numpy as np

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
PATHS = [
    GOLDEN / f"{name}.npz" for name in ("recurrence", "zoneout", "sequences")
]
# Case -> (layer, its arguments beside units and dtype).
SEQUENCES = {
    "lstm_plain": ("LNLSTM", {}),
    "lstm_masked": ("LNLSTM", {}),
    "lstm_state_only": ("LNLSTM", {"normalize": ("state",)}),
    "lstm_kernel_recurrent": ("LNLSTM", {"normalize": ("kernel", "recurrent")}),
    "gru_plain": ("LNGRU", {}),
    "gru_masked": ("LNGRU", {}),
    "rnn_plain": ("LNSimpleRNN", {}),
    "rnn_masked": ("LNSimpleRNN", {}),
    "bnlstm_train": ("BNLSTM", {"max_steps": 7, "momentum": 0.0}),
    "bnlstm_infer_longer": ("BNLSTM", {"max_steps": 7}),
    "lstm_zoneout": ("LNLSTM", {}),
    "lstm_zoneout_masked": ("LNLSTM", {}),
    "gru_zoneout": ("LNGRU", {}),
    "gru_zoneout_masked": ("LNGRU", {}),
    "rnn_zoneout_masked": ("LNSimpleRNN", {}),
    "lstm_reset_masked": ("LNLSTM", {}),
    "gru_reset_backwards": ("LNGRU", {"go_backwards": True}),
    "rnn_reset_masked": ("LNSimpleRNN", {}),
    "wnlstm_reset_backwards": ("WNLSTM", {"go_backwards": True}),
    "lstm_gate": ("LNLSTM", {"groups": "gate"}),
    "lstm_sum_reset": ("LNLSTM", {"normalize": ("sum", "state")}),
    "lstm_sum_gate": (
        "LNLSTM",
        {"normalize": ("sum", "state"), "groups": "gate"},
    ),
    "gru_gate_reset": ("LNGRU", {"groups": "gate"}),
    "lstm_projection": ("LNLSTM", {"projection": 4}),
    "gru_all": ("LNGRU", {"groups": "all"}),
    "gru_sum_reset": ("LNGRU", {"normalize": ("sum",), "use_sum_bias": True}),
}
LAYER_NORMS = ("ln_small", "ln_offset", "ln_tiny")


@functools.lru_cache(maxsize=1)
def cases():
    cases = {}
    for path in PATHS:
        with np.load(path) as file:
            for key in file.files:
                case, name = key.split("/")
                cases.setdefault(case, {})[name] = file[key]
    return cases


def case(name):
    """The arrays of one case, by name."""
    return dict(cases()[name])


def weights(name):
    """The weights of one case, without their prefix."""
    return with_prefix(name, "w_")


def states(name):
    """The initial states of one case.

    bnlstm_infer_longer starts from the first rows of bnlstm_train's.
    """
    if name == "bnlstm_infer_longer":
        rows = len(cases()[name]["x"])
        return [state[:rows] for state in states("bnlstm_train")]
    return list(with_prefix(name, "state").values())


def resets(name):
    """Flags and the states after them; None where the case has none."""
    flags = cases()[name].get("flags")
    return flags, list(with_prefix(name, "reset").values()) or None


def choices(name):
    """Of zoneout, by argument; none where the case is one without it."""
    return {
        key: value for key, value in cases()[name].items() if "zoneout" in key
    }


def final_states(name):
    """The final states of one case."""
    return list(with_prefix(name, "final").values())


def with_prefix(name, prefix):
    """The arrays of one case whose name starts so, without the prefix."""
    return {
        key.removeprefix(prefix): value
        for key, value in sorted(cases()[name].items())
        if key.startswith(prefix)
    }


def moving_statistics():
    """Those of bnlstm_infer_longer: the batch statistics of bnlstm_train."""
    data = cases()["bnlstm_train"]
    return {
        f"{site}_moving_{long}": data[f"batch_{short}_{site}"]
        for site in ("kernel", "recurrent", "state")
        for short, long in (("mean", "mean"), ("var", "variance"))
    }
