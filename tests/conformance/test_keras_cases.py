"""Keras' own test cases, as its wheel has them, with our layers in them.

What they expect are literals in Keras' own files. Every case runs but those
that the framework's backend leaves out. Cases that cannot pass stand in
CANNOT_PASS with their reason: they have to fail for it, so one that passes
one day, or fails in another way, makes the run fail.
"""

import dataclasses
import re
from collections.abc import Callable

import keras_cases
import pytest

import keras_ln

WITHOUT_NORM = {
    "LSTM": keras_cases.LSTM,
    "LSTMCell": keras_cases.LSTMCell,
    "GRU": keras_cases.GRUWithBias,
    "GRUCell": keras_cases.GRUCellWithBias,
}
# LNSimpleRNN has no site to leave out: Keras' layer stays where it stands
# beside the others, and ours has suites of its own.
SIMPLE_RNN = {
    "SimpleRNN": keras_cases.SimpleRNN,
    "SimpleRNNCell": keras_cases.SimpleRNNCell,
}
# A name, Keras' module, and what replaces `keras.layers.<key>` in it.
SUITES = {
    "LNLSTM": ("rnn.lstm_test", WITHOUT_NORM),
    "BNLSTM": ("rnn.lstm_test", {"LSTM": keras_cases.BNLSTM}),
    "WNLSTM": ("rnn.lstm_test", {"LSTM": keras_cases.WNLSTM}),
    "LNGRU": ("rnn.gru_test", WITHOUT_NORM),
    "LNSimpleRNN": ("rnn.simple_rnn_test", SIMPLE_RNN),
    # Keras' own RNN with cells of ours for those that the file defines.
    "RNN": ("rnn.rnn_test", keras_cases.CELLS_OF_THE_FILE),
    "Bidirectional": ("rnn.bidirectional_test", WITHOUT_NORM),
    "Bidirectional(LNSimpleRNN)": ("rnn.bidirectional_test", SIMPLE_RNN),
    "StackedRNNCells": ("rnn.stacked_rnn_cells_test", WITHOUT_NORM),
    "StackedRNNCells(LNSimpleRNNCell)": (
        "rnn.stacked_rnn_cells_test",
        SIMPLE_RNN,
    ),
    "TimeDistributed(WeightNormDense)": (
        "rnn.time_distributed_test",
        {"Dense": keras_ln.WeightNormDense},
    ),
    "LayerNormalization": (
        "normalization.layer_normalization_test",
        {"LayerNormalization": keras_ln.LayerNormalization},
    ),
    "LayerNormalization(epsilon=0.001)": (
        "normalization.layer_normalization_test",
        {"LayerNormalization": keras_cases.LayerNormalization},
    ),
    "BatchNormalization": (
        "normalization.batch_normalization_test",
        {"BatchNormalization": keras_ln.BatchNormalization},
    ),
}


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why a case cannot pass, and what its error has to say.

    `relax` takes the arguments of a `run_layer_test` of Keras and returns
    those without what cannot hold, or None for none: with it the case passes.
    """

    why: str
    says: str
    relax: Callable[[dict], dict | None] | None = None


def without_counts(arguments):
    counts = ("num_trainable", "num_seed_generators", "num_losses")
    return {
        name: value
        for name, value in arguments.items()
        if not any(count in name for count in counts)
    }


def without_rms(arguments):
    return None if "rms_scaling" in arguments["init_kwargs"] else arguments


COUNTS = "Unexpected number of trainable_weights"
OTHER_VALUE = "Not equal to tolerance"
GAINS = Reason("a gain for each matrix", COUNTS, without_counts)
TWO_BIASES = Reason(
    "two biases, which Keras has as the rows of one", COUNTS, without_counts
)
NOT_AFTER = Reason(
    "a product with the reset gate before it cannot be normalised",
    "`reset_after` must be True",
)
GAMMA_AND_BETA = Reason("gamma and beta", COUNTS, without_counts)
ALWAYS_NORMALISED = Reason(
    "literals of a sum that is not normalised; equal units, as theirs, have "
    "no variance; test_against_oracle.py has such cases with other weights",
    OTHER_VALUE,
)
LINEAR = Reason(
    "literals of linear cells of ones, which no cell of ours can be; "
    "test_against_oracle.py has such cases with other weights",
    OTHER_VALUE,
)
CUDNN = Reason(
    "whether Keras may hand its own layers to cuDNN",
    "False is not true|Requires a CUDA|Guards the torch|never invoked",
)
NO_RMS = Reason(
    "RMS scaling is a layer of its own, in Keras too: RMSNormalization",
    "argument.*rms_scaling",
)
CANNOT_PASS = {
    "WNLSTM-test_basics": GAINS,
    "LNGRU-test_basics": TWO_BIASES,
    "LNGRU-test_correctness0": NOT_AFTER,
    "LNGRU-test_correctness1": NOT_AFTER,
    "LNGRU-test_torch_cudnn_dispatch_fires": CUDNN,
    "LNSimpleRNN-test_basics": GAMMA_AND_BETA,
    "LNSimpleRNN-test_correctness": ALWAYS_NORMALISED,
    "LNSimpleRNN-test_masking": ALWAYS_NORMALISED,
    "LNSimpleRNN-test_pass_initial_state": ALWAYS_NORMALISED,
    "LNSimpleRNN-test_statefulness": ALWAYS_NORMALISED,
    "RNN-test_basics": Reason(
        "a seed generator each, as cells of Keras with dropout have",
        "Unexpected number of seed_generators",
        without_counts,
    ),
    "RNN-test_forward_pass_single_state": LINEAR,
    "RNN-test_forward_pass_two_states": LINEAR,
    "RNN-test_go_backwards": LINEAR,
    "RNN-test_masking": LINEAR,
    "RNN-test_passing_initial_state_single_state": LINEAR,
    "RNN-test_passing_initial_state_two_states": LINEAR,
    "RNN-test_statefulness_single_state": LINEAR,
    "RNN-test_statefulness_two_states": LINEAR,
    "Bidirectional-test_fused_gru_eligibility": CUDNN,
    "Bidirectional-test_fused_lstm_eligibility": CUDNN,
    "Bidirectional-test_torch_cudnn_bidirectional_gru_dispatch_fires": CUDNN,
    "Bidirectional(LNSimpleRNN)-test_basics": GAMMA_AND_BETA,
    "Bidirectional(LNSimpleRNN)-test_correctness": ALWAYS_NORMALISED,
    "StackedRNNCells-test_basics": TWO_BIASES,
    "StackedRNNCells(LNSimpleRNNCell)-test_basics": GAMMA_AND_BETA,
    "TimeDistributed(WeightNormDense)-test_basics": GAINS,
    "LayerNormalization-test_output": Reason(
        "the default epsilon is 1e-5, in Keras 1e-3", OTHER_VALUE
    ),
    "LayerNormalization-test_output_with_rms_scaling": NO_RMS,
    "LayerNormalization(epsilon=0.001)-test_output_with_rms_scaling": NO_RMS,
    **dict.fromkeys(
        [
            "LayerNormalization-test_ln_basics",
            "LayerNormalization(epsilon=0.001)-test_ln_basics",
        ],
        dataclasses.replace(NO_RMS, relax=without_rms),
    ),
    **dict.fromkeys(
        [
            "LayerNormalization-test_invalid_axis",
            "LayerNormalization(epsilon=0.001)-test_invalid_axis",
        ],
        Reason(
            "the same error in words of ours",
            "does not match.*`axis` must be an integer or a list",
        ),
    ),
}


CASES = {
    f"{suite}-{name}": keras_cases.is_of_this_backend(module, name)
    for suite, (module, layers) in SUITES.items()
    for name in keras_cases.names(module, layers)
}


def run(case, relax=None):
    """One case of Keras; `relax` is that of a `Reason`."""
    suite, _, name = case.rpartition("-")
    module, layers = SUITES[suite]

    class Case(keras_cases.case_class(module, layers)):
        def run_layer_test(self, layer_cls, init_kwargs, **kwargs):
            arguments = {"init_kwargs": init_kwargs, **kwargs}
            if relax is not None:
                arguments = relax(arguments)
            if arguments is not None:
                super().run_layer_test(layer_cls, **arguments)

    Case(name).debug()


@pytest.mark.promise("with `normalize=()` the layers pass Keras' own tests")
@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]])
def test_case(case):
    reason = CANNOT_PASS.get(case)
    if reason is None:
        run(case)
        return
    # Where a case leaves itself out, unittest raises an `Exception` too.
    with pytest.raises(Exception) as caught:
        run(case)
    assert re.search(reason.says, str(caught.value), re.DOTALL), caught.value
    if reason.relax is not None:
        run(case, reason.relax)


def test_every_reason_has_its_case():
    assert set(CANNOT_PASS) <= set(CASES)
