"""Baselines by hand and against a known truth, without a look ahead, and where one fails."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri

import forecaster as fc
from forecaster import swarm
from forecaster.errors import ForecasterWarning, UsageError, has
from forecaster.evaluation import BacktestOptions, baselines, evaluate_to_folder
from forecaster.evaluation.baselines import BASELINES, simple, volatility
from forecaster.evaluation.baselines import runner as running
from forecaster.evaluation.baselines.simple import Job
from forecaster.evaluation.rolling_origin import Origins
from forecaster.evaluation.scores.returns import session_variance
from tests.messages import refuses, warns

QUANTILES = np.array([0.1, 0.5, 0.9])
INSTALLED = [n for n, b in BASELINES.items() if not b.library or has(b.library)]
NAMES = [name for name, baseline in BASELINES.items() if baseline.together]
NINETEEN = np.arange(1, 20) / 20


def series(steps=400, seed=0, calm=False) -> np.ndarray:
    random = np.random.default_rng(seed)
    wander = np.zeros(steps) if calm else np.cumsum(random.normal(size=steps)) / 30
    volatility = 0.01 * np.exp(wander)
    return 50 * np.exp(np.cumsum(volatility * random.standard_t(5, steps)))


def run(name: str, y, origins, horizon=3, season=5):
    baseline = BASELINES[name]
    variance = np.diff(np.log(np.abs(y)), prepend=0.0) ** 2 if baseline.ranges else None
    job = Job(y, np.asarray(origins), horizon, QUANTILES, season, variance=variance)
    (result,) = running.throughout(baseline, [job])
    assert not np.isnan(result.forecasts).all(), result.reason
    return result.forecasts


@pytest.mark.parametrize("name", INSTALLED)
def test_nothing_after_an_origin_changes_its_forecast(name):
    y, origins = series(), np.array([300, 320, 350])
    edited = y.copy()
    edited[321:] = 7.0
    before, after = run(name, y, origins), run(name, edited, origins)
    assert before.shape == (3, 3, 3) and np.isfinite(before).all()
    np.testing.assert_array_equal(before[:2], after[:2])
    # The filter goes on: what came between two origins counts for the second.
    assert not np.array_equal(before[2], after[2])
    assert (np.diff(before, axis=-1) > 0).all()  # quantiles in order


@pytest.mark.parametrize("name", INSTALLED)
def test_that_a_series_will_fall_below_zero_is_not_known_before(name):
    y, origins = series(), np.array([300, 320, 350])
    edited = y.copy()
    edited[340:] = -1.0
    before, after = run(name, y, origins), run(name, edited, origins)
    np.testing.assert_allclose(before[:2], after[:2], rtol=1e-9)
    refused = BASELINES[name].ranges or name in ("croston", "sba", "tsb", "adida")
    assert np.isnan(after[2]).all() == refused  # the others are forecast without logarithms


@pytest.mark.parametrize("name", [name for name in INSTALLED if name != "sba"])
def test_bands_hold_about_what_they_say(name):
    # SBA lies 5 % below the mean of what is never zero; its bands are tested on sparse demand.
    y, origins = series(1500, 1, calm=True), np.arange(1200, 1490)
    made = run(name, y, origins, horizon=1)[:, 0]
    inside = (made[:, 0] < y[origins + 1]) & (y[origins + 1] < made[:, 2])
    assert 0.74 < inside.mean() < 0.9  # 80 %; those with normal steps are too wide in the middle


def test_simple_baselines_by_hand():
    y = np.array([100.0, 110, 99, 108, 120])
    z, deviate = np.log(y), 1.2815515655446004
    steps = np.diff(z)
    naive = np.log(run("naive", y, [3, 4], horizon=2))
    np.testing.assert_allclose(naive[:, :, 1], [[z[3]] * 2, [z[4]] * 2])
    deviation = np.sqrt((steps[:3] ** 2).mean())
    np.testing.assert_allclose(naive[0, 1, 2] - z[3], deviate * deviation * np.sqrt(2))
    drift = np.log(run("drift", y, [4], horizon=2))
    np.testing.assert_allclose(drift[0, :, 1], z[4] + steps.mean() * np.array([1, 2]))
    seasonal = run("seasonal_naive", y, [4], horizon=4, season=2)
    np.testing.assert_allclose(seasonal[0, :, 1], [108, 120, 108, 120])
    empirical = np.log(run("empirical", y, [4], horizon=2))
    np.testing.assert_allclose(empirical[0, 0] - z[4], np.quantile(steps, QUANTILES))
    np.testing.assert_allclose(empirical[0, 1] - z[4], np.quantile(z[2:] - z[:-2], QUANTILES))
    weights = simple.DECAY ** np.arange(4)[::-1]
    variance = (weights * steps**2).sum() / weights.sum()
    ewma = np.log(run("ewma", y, [4], horizon=1))
    np.testing.assert_allclose(ewma[0, 0, 2] - z[4], deviate * np.sqrt(variance))


def test_where_times_count_rows_the_season_is_each_series_own():
    steps, random = np.arange(400), np.random.default_rng(0)
    parts = [
        pd.DataFrame({"unique_id": name, "ds": steps, "y": 9 + np.sin(2 * np.pi * steps / season)})
        for name, season in (("short", 8), ("long", 24))
    ]
    frame = pd.concat(parts)
    frame["y"] += 0.01 * random.normal(size=len(frame))
    panel = fc.load_panel(frame)
    made = baselines.forecast(panel, panel.times[[370]], "seasonal_naive", horizon=24)
    assert (made["SeasonalNaive"] - made["y"]).abs().max() < 0.1
    given = baselines.forecast(panel, panel.times[[370]], "seasonal_naive", horizon=24, season=8)
    error = (given["SeasonalNaive"] - given["y"]).abs().groupby(given["unique_id"]).max()
    assert error["short"] < 0.1 < 0.5 < error["long"]


def counted(y: np.ndarray) -> fc.Panel:
    return fc.load_panel(pd.DataFrame({"unique_id": "a", "ds": np.arange(len(y)), "y": y}))


@pytest.mark.parametrize("name", ["drift", "seasonal_naive", "empirical", "ets", "theta", "ces"])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_constant_and_zero_series_have_their_value_as_forecast(name):
    for value in (0.0, 7.0):
        made = baselines.forecast(counted(np.full(20, value)), [8, 12], name, horizon=3)
        np.testing.assert_allclose(made[BASELINES[name].column], value, atol=1e-12)


@pytest.mark.parametrize("name", ["croston", "sba", "tsb", "adida"])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_methods_for_sparse_demand_forecast_counts_whose_bands_hold(name):
    random = np.random.default_rng(0)
    column = BASELINES[name].column
    inside, some = [], np.zeros(0)
    for _ in range(10):
        some = random.poisson(0.4, 60) * random.poisson(3, 60).astype(float)
        some[0] = 1
        made = baselines.forecast(counted(some), [50, 54], name, horizon=4, level=[80])
        low, median, high = (made[f"{column}{end}"] for end in ("-lo-80", "", "-hi-80"))
        assert (np.rint(high) == high).all() and (low >= 0).all() and (median <= high).all()
        inside += list((low <= made["y"]) & (made["y"] <= high))
    assert 0.8 <= np.mean(inside) <= 0.97, "a bound at zero holds more than its share"
    halves = baselines.forecast(counted(some / 2 + 0.25), [50], name, horizon=2)
    assert (halves[f"{column}-lo-95"] == 0).all() and halves[f"{column}-hi-95"].min() > 0
    zeros = baselines.forecast(counted(np.zeros(20)), [12], name, horizon=3)
    np.testing.assert_array_equal(zeros[column], 0.0)
    with warns(ForecasterWarning):
        below = baselines.forecast(counted(np.linspace(-1, 1, 30)), [20], name, horizon=2)
    assert below[column].isna().all()


def estimated(monkeypatch, y, mu=0.0, omega=0.05, alpha=0.1, beta=0.85):
    """The result of GJR whose optimiser ends at these parameters."""
    univariate = pytest.importorskip("arch.univariate")
    params = [mu, omega, alpha, 0.0, beta, 6.0]
    fit = lambda self, *, last_obs, **options: self.fix(params, last_obs=last_obs)  # noqa: E731
    monkeypatch.setattr(univariate.ConstantMean, "fit", fit)
    job = Job(y, np.arange(600, 650), 5, QUANTILES, 5)
    return running.throughout(BASELINES["gjr"], [job])[0]


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, ""),
        ({"alpha": 0.2, "beta": 0.9}, "its persistence is 1.1"),
        ({"mu": 1e6}, "the mean change lies beyond"),
        ({"omega": 1e9, "alpha": 0.0, "beta": 0.5}, "the estimate's variance explodes"),
    ],
)
def test_an_estimate_that_explodes_is_a_failure(params, reason, monkeypatch):
    made = estimated(monkeypatch, series(700, 3), **params)
    assert np.isnan(made.forecasts).all() == bool(made.reason) and reason in made.reason


def test_a_variance_that_explodes_later_ends_the_forecasts(monkeypatch):
    y = series(700, 3)
    y[620:] *= 1e9  # a day so far beyond all others that its square alone is too much
    made = estimated(monkeypatch, y, alpha=0.9, beta=0.05)
    lost = np.isnan(made.forecasts).any((1, 2)).tolist()
    assert lost == [False] * 20 + [True] * 30
    assert made.reason == "no forecasts from 30 of 50 cutoffs"


def test_a_series_on_which_one_fails_is_named_and_the_others_go_on(panel, monkeypatch):
    def broken(job):
        if job.y[0] == first:
            raise RuntimeError("no convergence\nat all")
        return simple.naive(job)

    row = panel.ids.index("KO")
    first = panel.channel(panel.target)[row, panel.mask[row]][0]
    monkeypatch.setattr(simple, "drift", broken)
    with warns(UserWarning):
        made = baselines.forecast(panel, panel.times[-9:-6], "drift", horizon=2)
    assert made.loc[made["unique_id"] == "KO", "Drift"].isna().all()
    assert made.loc[made["unique_id"] != "KO", "Drift"].notna().all()


@pytest.mark.parametrize("name", INSTALLED)
def test_of_prices_volatility_models_grow_as_ours_do(name, panel):
    panel = panel.only(panel.ids[:2])
    cutoffs = panel.times[[600, 610]]
    given = {"horizon": 3, "level": [80]}
    own, other = (
        baselines.forecast(panel, cutoffs, name, premium=premium, **given)
        for premium in (None, 0.05)
    )
    column = BASELINES[name].column
    if name not in ("empirical", "ewma", "har", "garch", "gjr", "log_har", "range_garch"):
        pd.testing.assert_frame_equal(own, other)
        return
    prices = panel.channel("adj_close")
    for row, each in enumerate(panel.ids):
        known = panel.times[panel.mask[row] & (panel.times <= cutoffs[0])]  # as their parameters
        growth = np.log(1.05) * (known[-1] - known[0]) / np.timedelta64(31_557_600, "s")
        mine = other[other["unique_id"] == each]
        now = mine["cutoff"].map(dict(zip(panel.times, prices[row], strict=True)))
        ahead = mine.groupby("cutoff").cumcount() + 1
        width = np.log(mine[f"{column}-hi-80"] / mine[f"{column}-lo-80"]) / (2 * ndtri(0.9))
        moves = growth / (len(known) - 1) * ahead - width**2 / 2
        np.testing.assert_allclose(mine[column], now * np.exp(moves), rtol=1e-9)
    for bound in (f"{column}-lo-80", f"{column}-hi-80"):
        np.testing.assert_allclose(other[bound] / other[column], own[bound] / own[column])


def test_slow_baselines_run_on_an_executor_and_what_its_workers_lost_has_a_reason(panel):
    class Away(swarm.Local):
        def run(self, function, common, parts, *, per_core=False):
            assert per_core and common.slow
            for number, part in enumerate(parts):
                yield part, swarm.Failed("lost") if number == 0 else function(common, part)

    name = "garch" if has("arch") else "range_garch"
    origins = Origins.from_panel(panel, np.array([600, 610]), 2)
    config = fc.Config(horizon=2)
    here = baselines.Runner(["naive", name], config, panel, [80])
    away = baselines.Runner(["naive", name], config, panel, [80], Away())
    frames = [runner.run(origins) for runner in (here, away)]
    assert away.failed[name] == {panel.ids[0]: "lost"} and not here.failed[name]
    rest = (origins.keys["unique_id"] != panel.ids[0]).to_numpy()
    pd.testing.assert_frame_equal(frames[0][rest], frames[1][rest], check_exact=True)
    assert frames[1].loc[~rest, BASELINES[name].column].isna().all()


def test_an_unknown_or_missing_baseline_says_what_to_do(panel, monkeypatch):
    with refuses(UsageError):
        baselines.forecast(panel, panel.times[-9:-6], "garsch")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refuses(UsageError):
        baselines.forecast(panel, panel.times[-9:-6], "garch")


def walks(count: int, steps: int, seed: int = 0) -> list[np.ndarray]:
    """Levels that errors move by 0.4 of themselves, far above zero."""
    random = np.random.default_rng(seed)
    error = random.normal(size=(count, steps))
    moved = 0.4 * np.cumsum(error, axis=1)
    return list(1000 + error + np.pad(moved, ((0, 0), (1, 0)))[:, :-1])


@pytest.mark.parametrize("name", NAMES)
def test_bands_hold_what_they_say_at_every_horizon(name):
    """A level of exponential smoothing is what each of these models can hold."""
    horizon, origin = 6, 150
    rows, origins = walks(300, origin + horizon + 1), np.array([origin])
    some = [Job(y, origins, horizon, QUANTILES, 1) for y in rows]
    made = np.array(getattr(simple, name)(some))[:, 0]
    came = np.array([job.y[origin + 1 :] for job in some])
    inside = ((made[..., 0] < came) & (came < made[..., 2])).mean(0)
    np.testing.assert_allclose(inside, 0.8, atol=0.08)
    width = (made[..., 2] - made[..., 0]).mean(0) / (2 * 1.2816)
    truth = np.sqrt(1 + 0.16 * np.arange(horizon))
    np.testing.assert_allclose(width, truth, rtol=0.12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_where_too_few_values_are_known_there_is_no_forecast_and_it_is_said(name):
    y = np.r_[1.0, 2, 4, 3, walks(1, 40)[0]]
    panel = fc.load_panel(pd.DataFrame({"unique_id": "a", "ds": np.arange(len(y)), "y": y}))
    with warns(ForecasterWarning):
        made = baselines.forecast(panel, [2, 30], name, horizon=2)
    assert made.iloc[:2, 4:].isna().all(axis=None)
    # The model is that of an evaluation which begins where enough values are known.
    later = baselines.forecast(panel, [30], name, horizon=2)
    np.testing.assert_array_equal(made.iloc[2:, 4:], later.iloc[:, 4:])


def market(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate prices whose variance of a day follows its range, and is known.

    Returns closes, bars (column, day) and the variance of each day. The path within a day is a
    random walk of 100 steps from the close of the day before.
    """
    random = np.random.default_rng(seed)
    closes, bars, variances = np.empty(rows), np.empty((4, rows)), np.empty(rows)
    last, variance = 100.0, 1e-4
    for row in range(rows):
        path = np.cumsum(np.sqrt(variance / 100) * random.normal(size=100))
        high, low = max(path.max(), 0.0), min(path.min(), 0.0)
        bars[:, row] = last * np.exp([0.0, high, low, path[-1]])
        closes[row], variances[row] = bars[3, row], variance
        within = 0.5 * (high - low) ** 2 - (2 * np.log(2) - 1) * path[-1] ** 2
        variance = 2e-6 + 0.30 * within + 0.68 * variance
        last = closes[row]
    return closes, bars, variances


def test_the_variance_of_a_session_is_that_of_its_range_and_of_the_night_before():
    y = np.array([100.0, 104.0, 99.0, 99.0])
    bars = np.array(
        [
            [100.0, 102.0, 104.0, np.nan],
            [101.0, 105.0, 104.0, 99.0],
            [99.0, 101.0, 98.0, 99.0],
            [100.0, 104.0, 99.0, 99.0],
        ]
    )
    got = session_variance(y, bars)
    inside = 0.5 * np.log(105 / 101) ** 2 - (2 * np.log(2) - 1) * np.log(104 / 102) ** 2
    assert got[1] == pytest.approx(inside + np.log(102 / 100) ** 2)
    inside = max(0.5 * np.log(104 / 98) ** 2 - (2 * np.log(2) - 1) * np.log(99 / 104) ** 2, 0)
    assert got[2] == pytest.approx(inside)  # it opened where it had closed
    assert got[3] == 0.0  # no open: the squared change of the close
    split = session_variance(y, bars * np.array([1.0, 0.5, 0.5, 1.0]))
    np.testing.assert_allclose(split, got)  # of adjusted prices, quoted ones differ by a factor


def test_where_the_range_moves_the_variance_they_come_close_to_the_truth():
    y, bars, truth = market(2500, 1)
    variance, origins = session_variance(y, bars), np.arange(2000, 2499)
    job = Job(y, origins, 1, NINETEEN, 5, variance=variance)
    true = y[origins][:, None] * np.exp(np.sqrt(truth[origins + 1])[:, None] * ndtri(NINETEEN))

    def crps(made: np.ndarray) -> float:
        error = y[origins + 1][:, None] - made
        return float(np.maximum(NINETEEN * error, (NINETEEN - 1) * error).mean())

    scores = {
        function.__name__: crps(function(job)[:, 0]) / crps(true)
        for function in (volatility.range_garch, volatility.log_har)
    }
    closes = simple.ewma(job)[:, 0]
    assert max(scores.values()) < 1.005
    assert max(scores.values()) < crps(closes) / crps(true)


@pytest.mark.parametrize("name", ["log_har", "range_garch"])
def test_without_ranges_they_are_refused_before_the_work(name, panel, config, tmp_path):
    closes = panel.to_frame()[["unique_id", "ds", "open", "close"]]
    bare = fc.load_panel(closes.rename(columns={"unique_id": "ticker", "ds": "date"}))
    with refuses(UsageError):
        evaluate_to_folder(tmp_path / "e", bare, config, BacktestOptions(3, baselines=(name,)))
    assert not (tmp_path / "e").exists()
