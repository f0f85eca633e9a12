"""The layers and sizes to time."""

import argparse
from typing import NamedTuple


class Layer(NamedTuple):
    """Names of the classes for one kind of layer."""

    ours: str
    keras: str
    torch: str
    # BNLSTMCell needs the loop of its layer.
    cell: str | None = None


LAYERS = {
    "lstm": Layer("LNLSTM", "LSTM", "LSTM", "LNLSTMCell"),
    "gru": Layer("LNGRU", "GRU", "GRU", "LNGRUCell"),
    "simple_rnn": Layer("LNSimpleRNN", "SimpleRNN", "RNN", "LNSimpleRNNCell"),
    "bn_lstm": Layer("BNLSTM", "LSTM", "LSTM"),
    "wn_lstm": Layer("WNLSTM", "LSTM", "LSTM", "WNLSTMCell"),
}


class Size(NamedTuple):
    """Batch, time, features, units."""

    batch: int
    time: int
    features: int
    units: int


SIZES = {
    "A": Size(128, 64, 256, 256),
    "B": Size(64, 100, 512, 512),
    # The paper's settings of handwriting generation and skip-thoughts.
    "C": Size(8, 500, 3, 400),
    "D": Size(64, 30, 620, 2400),
    # A batch of one, with larger and larger weights.
    "S": Size(1, 200, 64, 128),
    "E": Size(1, 100, 64, 256),
    "F": Size(1, 100, 64, 512),
    "G": Size(1, 100, 64, 1024),
}


def parse_size(text):
    """A letter or four numbers B,T,D,U."""
    if text in SIZES:
        return SIZES[text]
    numbers = text.split(",")
    if len(numbers) != len(Size._fields) or not all(
        number.strip().isdecimal() and int(number) for number in numbers
    ):
        raise argparse.ArgumentTypeError(
            f"expected {', '.join(SIZES)} or four positive integers "
            f"BATCH,TIME,FEATURES,UNITS, received {text!r}"
        )
    return Size(*map(int, numbers))


def add_sizes(parser, default):
    """The option `--sizes`, of texts that `parse_size` reads."""

    def checked(text):
        parse_size(text)
        return text

    parser.add_argument(
        "--sizes",
        nargs="+",
        type=checked,
        default=list(default),
        help=f"{', '.join(SIZES)}, or B,T,D,U (default: {' '.join(default)})",
    )
