"""What the tests of comparisons have in common."""

import functools
import importlib

# Before TensorFlow (2.21), after which Triton of torch 2.13 would crash.
import keras  # noqa: F401 (imported for its order)
import pytest


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """From a script and flags to the folder of a run that nothing disturbed.

    Those that are compared with it are not compiled either.
    """

    @functools.cache
    def run(script, flags, compiled=False):
        from common import runs

        folder = tmp_path_factory.mktemp(script.rpartition(".")[2]) / "whole"
        main = importlib.import_module(script).main
        with pytest.MonkeyPatch.context() as patch:
            if not compiled:
                patch.setattr(runs.Run, "speed", {})
            assert main([*flags.split(), "--output-dir", str(folder)]) == 0
        return folder

    return run


@pytest.fixture
def few(monkeypatch, uncompiled):
    """Few examples, and few fits of what measures sentences."""
    import numpy as np
    from common import sentence_evaluation
    from common.datasets import books, captions, strokes, verse_questions

    ask, king_james = verse_questions.ask, books.king_james

    def few_questions():
        train, validation = ask()
        return train[:400], validation[:96]

    def one_book():
        return {"Genesis": king_james()["Genesis"]}

    for module, name, value in (
        (verse_questions, "ask", few_questions),
        (books, "king_james", one_book),
        (strokes, "SMALL_TRAINING_TEXTS", 64),
        (strokes, "SMALL_TEST_TEXTS", 32),
        (captions, "SMALL_COUNTS", (64, 20, 50)),
        (sentence_evaluation, "PROCESSES", 1),
        (sentence_evaluation, "FOLDS", 3),
        (sentence_evaluation, "PENALTIES", np.array([0.1, 1.0])),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def packaged(tmp_path_factory, monkeypatch):
    """Small packages of data in place of those that may be installed."""
    import packaged_data

    folder = packaged_data.write(tmp_path_factory.mktemp("packages"))
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def uncompiled(monkeypatch):
    """What XLA would need for a model is more than these train."""
    from common import runs

    monkeypatch.setattr(runs.Run, "speed", {})
