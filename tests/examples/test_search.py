"""The searches: search.py's points, rows and statistics; tune.py's trials."""

import itertools

import keras
import numpy as np
import pytest
import search
import search_analysis as analysis
import tune
from arrays import to_numpy
from common import files
from common.errors import InputError
from everyday_tasks import load
from scripts import refusal, rows

import keras_ln

BACKEND = keras.backend.backend()
TASKS, KINDS = ("addition", "forecast"), search.KINDS


def test_points_are_those_of_the_study():
    found = search.settings_of("addition", 64)
    expected = (9.61169e-4, 0.231924, 1.46918, 0.069415, 1.45084, 0.168245)
    numbers = [getattr(s, name) for s in found for name in analysis.SETTINGS]
    assert numbers[:6] == pytest.approx(expected, rel=1e-5)
    for count in analysis.PREFIXES:
        for name, (low, high) in zip(
            analysis.SETTINGS,
            (search.RATES, search.SCALES, search.SCALES),
            strict=True,
        ):
            values = np.array([getattr(s, name) for s in found[:count]])
            places = np.log(values / low) / np.log(high / low)
            # One point in each of as many equal parts of the range.
            assert {*np.int64(places * count)} == {*range(count)}
        steps = [s.forget_steps for s in found[:count]]
        assert steps.count(None) == steps.count(11) == count // 2


def test_points_are_the_outer_loop_and_processes_share_it():
    runs = [*search.runs(search.TASKS, KINDS, 2)]
    assert [run[0].point for run in runs] == [0] * 48 + [1] * 48
    of_each = [
        {run for run in runs if search.mine(*run[1:], (n, 2))} for n in (1, 2)
    ]
    assert of_each[0] | of_each[1] == {*runs}
    assert len(of_each[0]) == len(of_each[1]) == 48


def _row(**values):
    usual = {"point": 0, "task": "addition", "forget_steps": None}
    return dict.fromkeys(search.COLUMNS, 0.5) | usual | values


def test_a_row_is_whole_or_absent(tmp_path):
    one, two = tmp_path / "search-1-of-2.csv", tmp_path / "search-2-of-2.csv"
    search.append(one, _row(kind="lstm", machine="x, 2 cores"))
    with one.open("a") as file:
        file.write("addition,gru,0,0.0")  # by a process that was killed
    assert {*analysis.read([one])} == {(0, "addition", "lstm")}
    search.append(one, _row(kind="gru"))
    search.append(two, _row(kind="lngru"))
    found = analysis.read([one, two])
    assert {kind for _, _, kind in found} == {"lstm", "gru", "lngru"}
    assert found[0, "addition", "lstm"]["machine"] == "x; 2 cores"
    assert np.isnan(found[0, "addition", "lstm"]["forget_steps"])
    search.append(two, _row(kind="lstm", test_loss=0.25))
    with pytest.raises(InputError, match="line 3: .* has two results"):
        analysis.read([one, two])
    two.write_text("task,kind\naddition,lstm\n")
    with pytest.raises(InputError, match="line 2: expected a row of search"):
        analysis.read([two])


@pytest.mark.parametrize(
    "flags, said",
    [
        ("--process 3/2", "expected I/N, 1 to N of N, received '3/2'"),
        ("--points 65", "of at least 1 and at most 64, received '65'"),
        ("--analyse", "first 16 points for addition"),
    ],
)
def test_flags_that_are_refused(capsys, tmp_path, flags, said):
    flags = [*flags.split(), "--output-dir", tmp_path]
    assert said in refusal(capsys, search.main, *flags)
    assert not [*tmp_path.iterdir()]


def _simulated(points, effects, seed=0, spread=0.5):
    """Rows with losses exp(effect + a point's + a run's deviation)."""
    random = np.random.default_rng(seed)
    shared = spread * random.normal(size=points)
    rows = {}
    settings = search.settings_of(TASKS[0], points)
    for task, kind in itertools.product(TASKS, KINDS):
        own = effects[kind] + shared + 0.3 * random.normal(size=points)
        for point, loss in enumerate(np.exp(own)):
            rows[point, task, kind] = {
                **settings[point]._asdict(),
                "forget_steps": settings[point].forget_steps or np.nan,
                "test_loss": loss,
                "validation_loss": loss * np.exp(0.05 * random.normal()),
                "test_error": 10 * loss,
                "on_the_way": 2 * loss,
                "diverged": 0.0,
            }
    return rows


def test_the_best_of_k_is_the_mean_over_all_subsets():
    random = np.random.default_rng(0)
    validation, test = random.random((2, 3, 9))
    found = analysis.expected_best(validation, test, 4)
    for row, k in itertools.product(range(3), range(1, 5)):
        kept = [
            test[row, min(some, key=lambda p, r=row: validation[r, p])]
            for some in itertools.combinations(range(9), k)
        ]
        assert found[row, k - 1] == pytest.approx(np.mean(kept), rel=1e-12)
    with_ties = np.where(validation < 0.5, 0.5, validation)
    values = np.where(validation < 0.5, 7.0, test)
    back = np.s_[:, ::-1]
    np.testing.assert_allclose(
        analysis.expected_best(with_ties, values, 4),
        analysis.expected_best(with_ties[back], values[back], 4),
        rtol=1e-12,
    )


def test_chances_and_disjoint_studies():
    random = np.random.default_rng(0)
    ours, theirs = random.integers(4, size=(2, 16)).astype(float)
    wins = np.sign(theirs - ours[:, None]) / 2 + 0.5
    assert analysis.chance(ours, theirs) == pytest.approx(wins.mean())
    kept = analysis.studies(np.array([ours]), np.array([theirs]))
    firsts = (ours[:8].argmin(), 8 + ours[8:].argmin())
    assert kept.tolist() == [[theirs[n] for n in firsts]]


def test_the_unit_of_all_tasks_is_the_task():
    mean, low, high = analysis.over_tasks(np.array([0.1, 0.3]))
    # The quantile of Student's t with one degree of freedom is 12.7062.
    assert (mean, low, high) == pytest.approx((0.2, -1.07062, 1.47062))


def test_a_report_of_simulated_rows(tmp_path, capsys):
    effects = dict.fromkeys(KINDS, 0.0) | {"lnlstm": -1.0}
    rows = _simulated(40, effects)
    # Points after the first 32, and those of others, are left out.
    found = analysis.study(rows, TASKS, KINDS)
    assert found.of("gru", "test_loss").shape == (2, 32)
    pairs = analysis.pairs(found)
    assert [row["task"] for row in pairs] == [*TASKS, "all"] * 4
    for row in pairs:
        inside = row["kind"] == "lnlstm"
        assert abs(row["log ratio"] + inside) < 0.3
        if row["task"] != "all":
            assert (row["to"] < -0.5) == inside
            assert row["from"] < row["log ratio"] < row["to"]
            assert (row["k"], row["studies of 8"]) == (8, 4)
            assert (row["won"] == 4) == inside
            assert (row["chance of a point"] > 0.85) == inside
    del rows[16, "forecast", "gru"]
    assert analysis.study(rows, TASKS, KINDS).columns["test_loss"].size == 192
    del rows[15, "forecast", "gru"]
    with pytest.raises(InputError, match="for addition, forecast.*found 15"):
        analysis.study(rows, TASKS, KINDS)

    path = tmp_path / "search-1-of-1.csv"
    for (_, task, kind), row in rows.items():
        search.append(path, _row(task=task, kind=kind, **row))
    flags = ["--analyse", "--task", "addition", "--output-dir", str(tmp_path)]
    assert search.main(flags) == 0
    out = capsys.readouterr().out
    assert "The first 32 points" in out
    assert (
        "addition, the expected test loss of the best of 8 points: lnl" in out
    )
    names = {"forest.png", "best_of_k.png", "where.png", "pairs.csv"}
    names |= {"best_of_k.csv", path.name}
    assert {own.name for own in tmp_path.iterdir()} == names


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_settings_are_where_the_study_says(task, kind):
    import search_model

    data, settings = load(task, 480), search.Settings(3, 0.1, 0.5, 2.0, 9)
    models = []
    for own in (search.Settings(3, 0.1, 1.0, 1.0, 9), settings):
        keras.utils.set_random_seed(own.point)
        models.append(search_model.build_model(kind, task, data, 8, own))
    layers = models[1].layers
    inside = kind.startswith("ln")
    names = (
        ("kernel_gamma", "recurrent_gamma")
        if inside
        else ("kernel", "recurrent_kernel")
    )
    scales = dict(zip(names, (0.5, 2.0), strict=True))
    for one, two in zip(*(m.weights for m in models), strict=True):
        scale = scales.get(one.name, 1.0) if "cell" in one.path else 1.0
        expected = scale * to_numpy(one)
        found = to_numpy(two)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    cells = [x.cell for x in layers if isinstance(x, keras.layers.RNN)]
    assert len(cells) == (2 if task == "addition" else 1)
    for cell in cells:
        assert cell.bias_initializer.steps == 9
        lstm = "lstm" in kind
        bias = to_numpy(cell.bias)
        bias = bias[0] if bias.ndim == 2 else bias
        keep = bias[8:16] if lstm else bias[:8] * (-1 if inside else 1)
        assert 0 <= keep.min() < keep.max() <= np.log(8)
        ours = keras_ln.LNLSTMCell if lstm else keras_ln.LNGRUCell
        assert isinstance(cell, ours) == inside
    norms = [x for x in layers if type(x) is keras.layers.LayerNormalization]
    words = task == "addition"
    outside = kind.endswith("_outside")
    assert len(norms) == outside * (len(cells) + words)


if BACKEND == "jax":

    @pytest.mark.every_backend
    @pytest.mark.full
    def test_training_is_that_of_model_fit():
        """Also by a program that XLA compiled for another point."""
        import everyday_model
        import search_model

        data, sizes = load("addition", 480), search.Sizes(2, 32, 8, 480)
        settings = [search.Settings(n, 0.02, 0.5, 2.0, None) for n in range(2)]
        trainer = search_model.Trainer()
        found = [
            trainer.train("lnlstm", "addition", data, sizes, own)
            for own in settings
        ]
        assert len(trainer.programs) == 1
        own = settings[1]
        keras.utils.set_random_seed(own.point)
        model = search_model.build_model("lnlstm", "addition", data, 8, own)
        learnt = data.held_out()
        updates = len(learnt.x) // 32
        loss, metrics = everyday_model.measured("addition", data)
        rate = keras.optimizers.schedules.CosineDecay(0.02, 2 * updates)
        adam = keras.optimizers.Adam(rate, global_clipnorm=1.0)
        model.compile(adam, loss, metrics=metrics)
        ends = []
        for epoch in range(2):
            order = np.random.default_rng((1, epoch))
            order = order.permutation(len(learnt.x))[: updates * 32]
            x, y = learnt.x[order], learnt.y[order]
            model.fit(x, y, batch_size=32, shuffle=False, verbose=0)
            ends.append(
                [
                    model.evaluate(own.test_x, own.test_y, 480, verbose=0)
                    for own in (learnt, data)
                ]
            )
        (validation, _), (test, accuracy) = min(ends)
        row = found[1]
        assert row["validation_loss"] == pytest.approx(validation, rel=1e-3)
        assert row["test_loss"] == pytest.approx(test, rel=1e-3)
        assert row["test_error"] == pytest.approx(100 * (1 - accuracy))
        assert row["updates"] == 2 * updates
        # The first epoch counts as much as the second.
        way = np.mean([end[1][0] for end in ends])
        assert row["on_the_way"] == pytest.approx(way, rel=1e-3)

    @pytest.mark.every_backend
    @pytest.mark.full
    @pytest.mark.parametrize("rate", [1e-9, np.nan])
    def test_no_run_is_worse_than_a_constant(rate):
        import search_model

        data, sizes = load("long_memory", 480), search.Sizes(1, 32, 4, 480)
        own = search.Settings(0, rate, 3.0, 3.0, None)
        row = search_model.Trainer().train(
            "gru", "long_memory", data, sizes, own
        )
        mean = data.held_out().y.mean()
        loss = np.mean((data.test_y - mean) ** 2)
        assert row["test_loss"] == pytest.approx(loss, rel=1e-5)
        assert row["test_error"] == pytest.approx(loss**0.5, rel=1e-5)
        assert row["on_the_way"] == row["test_loss"]
        assert (row["updates"], row["diverged"]) == (0, int(np.isnan(rate)))


pytestmark = pytest.mark.usefixtures("uncompiled")
EXPERIMENT = "permutation_invariant_mnist"
FLAGS = [EXPERIMENT, "--smoke", "--unit-choices", "4", "6", "--epochs", "2"]


@pytest.mark.parametrize(
    "tuner",
    [
        pytest.param(
            tuner, marks=[] if tuner == "bayesian" else [pytest.mark.full]
        )
        for tuner in tune.TUNERS
    ],
)
def test_every_tuner(tmp_path, capsys, tuner):
    folder = tmp_path / "search"
    words = [*FLAGS, "--tuner", tuner, "--max-trials", "2"]
    words += ["--norm-kinds", "none", "batch", "--gains", "0.5", "1"]
    words += ["--learning-rates", "1e-3", "1e-2"]
    words += ["--output-dir", str(folder)]
    assert tune.main(words) == 0
    trials = rows(folder / "trials.csv")
    assert sorted(int(row["trial"]) for row in trials) == [0, 1]
    losses = [float(row["val_loss"]) for row in trials]
    assert losses == sorted(losses) and losses[0] < 3
    for row in trials:
        assert row["status"] == "completed"
        assert (
            row["gain"] in {"none": [""], "batch": ["0.5", "1.0"]}[row["norm"]]
        )
        assert row["units"] in ("4", "6")
        assert 1e-3 <= float(row["learning_rate"]) <= 1e-2
    assert "| trial | status    | norm " in capsys.readouterr().out
    model = keras.models.load_model(folder / "model.keras")
    assert model.layers[1].units == int(trials[0]["units"])
    assert files.read_json(folder / "metrics.json")["val_loss"] == losses[0]
    assert tune.main([*words, "--resume"]) == 0
    assert "is finished" in capsys.readouterr().out


@pytest.mark.full
def test_trials_that_diverge_are_told(tmp_path, capsys):
    """KerasTuner would end the search at the third."""
    folder = tmp_path / "search"
    words = [*FLAGS, "--max-trials", "4", "--norm-kinds", "none"]
    words += ["--output-dir", str(folder), "--learning-rates", "1e29", "1e30"]
    assert tune.main(words) == 1
    shown = capsys.readouterr()
    assert "no trial had a finite loss" in shown.err
    assert "Traceback" not in shown.out + shown.err
    trials = rows(folder / "trials.csv")
    assert [row["status"] for row in trials] == 4 * ["failed"]
    assert not (folder / "model.keras").exists()
