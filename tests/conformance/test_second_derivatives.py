"""Derivatives of derivatives of the fused op, against the cell loop's."""

import functools

import pytest
from arrays import close
from backend_gradients import BACKEND, TOLERANCE, gradient_penalty, programs_are
from descriptors import BY_NAME, SEQUENCE_LAYERS
from layer_calls import choices
from pairwise import one_everywhere
from recurrence import MASKS, RESETS, Problem


def check(problem, **options):
    """Of the op and of the loop, where some steps are masked."""
    fused, loop = (
        gradient_penalty(
            problem.layer(use_fused=use), problem.x, MASKS["middle"], **options
        )
        for use in (True, False)
    )
    assert abs(loop[0]).max() > 1e-3
    close(fused, loop, **TOLERANCE)


@pytest.mark.parametrize(
    "row", one_everywhere(SEQUENCE_LAYERS, "LNLSTM", "BNLSTM")
)
def test_gradient_of_a_gradient(row):
    check(Problem(row, {"return_sequences": True}))


def test_resets():
    problem = Problem(BY_NAME["LNLSTM"], {"return_sequences": True})
    check(problem, reset=RESETS["mixed"])


@pytest.mark.every_backend
def test_zoneout():
    row = BY_NAME["LNLSTM"]
    check(Problem(row, {"return_sequences": True}, choices=choices(row)))


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("row", one_everywhere(SEQUENCE_LAYERS, "LNSimpleRNN"))
def test_where_rows_have_no_variance(row, on_cpu, monkeypatch):
    """Steps of zeros, from a state of zero."""
    programs_are(monkeypatch, on_cpu=on_cpu)
    problem = Problem(row, {"return_sequences": True})
    problem.x[:, :2] = 0.0
    check(problem)


if BACKEND == "tensorflow":

    @pytest.mark.every_backend
    def test_persistent_tape():
        import tensorflow as tf

        row = next(r for r in SEQUENCE_LAYERS if r.name == "LNLSTM")
        problem = Problem(row, {})
        layer, x = problem.layer(), tf.constant(problem.x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = layer(x, training=True)
            once, twice = tf.reduce_sum(y), 2.0 * tf.reduce_sum(y)
        first, second = tape.gradient(once, x), tape.gradient(twice, x)
        close(2.0 * first, second, rtol=1e-14)
        assert abs(first.numpy()).max() > 1e-3

    @pytest.mark.parametrize("row", one_everywhere(SEQUENCE_LAYERS, "LNLSTM"))
    def test_by_xla_and_without_it_after_one_another(row):
        """TensorFlow hands traces on, with the gradients made of them."""
        import tensorflow as tf

        problem = Problem(row, {})
        layer, mask = problem.layer(), MASKS["none"]
        plain, compiled, again = (
            gradient_penalty(
                layer,
                problem.x,
                mask,
                functools.partial(tf.function, jit_compile=by_xla),
            )
            for by_xla in (False, True, False)
        )
        assert abs(plain[0]).max() > 1e-3
        for found in (compiled, again):
            close(found, plain, **TOLERANCE)
