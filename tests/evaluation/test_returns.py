"""Scores of log returns and what quantiles imply, beside formulas written out and the truth."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

import forecaster as fc
from forecaster.evaluation.scores.returns import COLUMNS, Implied, Realized, session_variance

LEVELS = (95, 90, 80, 50)
DAYS = pd.bdate_range("2024-01-01", periods=60)
CUTOFFS = range(40, 58)
OF_RETURNS = ["qlike", "qlike_range", "fz0-0.05", "fz0-0.025", "log_score"]
QUANTILES = np.array([0.025, *np.arange(1, 20) / 20, 0.975])
FEW = np.array([0.025, 0.1, 0.5, 0.9, 0.975])


def bars(seed: int = 0) -> pd.DataFrame:
    """Sixty sessions of one stock, the third last without any change."""
    random = np.random.default_rng(seed)
    steps = 0.02 * random.normal(size=60)
    steps[57] = 0.0
    close = 50 * np.exp(np.cumsum(steps))
    open_ = np.concatenate([[50.0], close[:-1]]) * np.exp(0.005 * random.normal(size=60))
    top, bottom = np.maximum(open_, close), np.minimum(open_, close)
    high = top * np.exp(np.abs(0.01 * random.normal(size=60)))
    low = bottom * np.exp(-np.abs(0.01 * random.normal(size=60)))
    return pd.DataFrame(
        {"ticker": "a", "date": DAYS, "open": open_, "high": high, "low": low, "close": close}
    )


def forecasts(prices: pd.DataFrame, **deviations: float) -> pd.DataFrame:
    """Forecasts one and two days ahead, normal in logarithms around the latest price."""
    close, rows = prices["close"].to_numpy(), []
    for cutoff in CUTOFFS:
        for ahead in (1, 2):
            row = {"unique_id": "a", "ds": DAYS[cutoff + ahead], "cutoff": DAYS[cutoff]}
            row |= {"y": close[cutoff + ahead], "Naive": close[cutoff]}
            for model, deviation in deviations.items():
                row[model] = close[cutoff]
                for level in LEVELS:
                    reach = stats.norm.ppf(0.5 + level / 200) * deviation * np.sqrt(ahead)
                    row[f"{model}-lo-{level}"] = close[cutoff] * np.exp(-reach)
                    row[f"{model}-hi-{level}"] = close[cutoff] * np.exp(reach)
            rows.append(row)
    return pd.DataFrame(rows)


def test_scores_of_normal_log_returns_are_those_written_out():
    prices = bars()
    frame = forecasts(prices, M=0.02)
    got = fc.evaluate(frame, panel=fc.load_panel(prices), by_horizon=True)
    got = got[got["model"] == "M"].set_index("horizon")
    for ahead in (1, 2):
        part = frame.groupby("cutoff").nth(ahead - 1)
        r, deviation = np.log(part["y"] / part["Naive"]), 0.02 * np.sqrt(ahead)
        qlike = np.log(deviation**2) + (r**2).mean() / deviation**2
        assert got.loc[ahead, "qlike"] == pytest.approx(qlike, rel=1e-4)
        log_score = -stats.norm.logpdf(r, 0, deviation).mean()
        assert got.loc[ahead, "log_score"] == pytest.approx(log_score, rel=1e-3)
        for tail in (0.05, 0.025):
            var = deviation * stats.norm.ppf(tail)
            es = -deviation * stats.norm.pdf(stats.norm.ppf(tail)) / tail
            hits = (r <= var).astype(float)
            fz0 = -hits * (var - r) / (tail * es) + var / es + np.log(-es) - 1
            assert got.loc[ahead, f"fz0-{tail:g}"] == pytest.approx(fz0.mean(), rel=1e-3)


def test_the_proxy_of_ranges_is_the_sum_of_the_sessions_in_units_of_squared_returns():
    prices = bars()
    frame = forecasts(prices, M=0.02)
    panel = fc.load_panel(prices)
    realized = Realized.from_panel(frame, panel, DAYS[40])
    variance = session_variance(prices["close"].to_numpy(), prices[list(COLUMNS)].to_numpy().T)
    changes = np.diff(np.log(prices["close"]), prepend=np.log(prices["close"].iloc[0]))
    unit = (changes[:41] ** 2).sum() / variance[:41].sum()
    assert realized.variance is not None
    np.testing.assert_allclose(realized.variance[2:4], unit * np.cumsum(variance[42:44]))
    got = fc.evaluate(frame, panel=panel, by_horizon=True).query("model == 'M'")
    expected = np.log(0.02**2) + realized.variance[::2].mean() / 0.02**2
    assert got["qlike_range"].iloc[0] == pytest.approx(expected, rel=1e-4)
    # The factor is that of the rows up to the first cutoff: later ones have no part in it.
    later = prices.assign(close=prices["close"] * np.where(np.arange(60) > 45, 1.5, 1.0))
    after = Realized.from_panel(frame, fc.load_panel(later), DAYS[40]).variance
    assert after is not None
    np.testing.assert_array_equal(after[:8], realized.variance[:8])


def test_only_prices_with_bands_and_a_latest_price_have_these_scores():
    prices = bars()
    frame = forecasts(prices, M=0.02)
    panel = fc.load_panel(prices)
    y = fc.load_panel(prices.rename(columns={"ticker": "unique_id", "date": "ds", "close": "y"}))
    plain = [f"M-{side}-{level}" for side in ("lo", "hi") for level in LEVELS[:2]]
    for got in (
        fc.evaluate(frame),
        fc.evaluate(frame, panel=y),
        fc.evaluate(frame.drop(columns="Naive"), panel=panel),
        fc.evaluate(frame.drop(columns=plain), panel=panel),
    ):
        assert not {*OF_RETURNS} & {*got}
    closes = fc.load_panel(prices[["ticker", "date", "close"]])
    assert {*OF_RETURNS} - {*fc.evaluate(frame, panel=closes)} == {"qlike_range"}


def test_a_model_with_a_forecast_that_has_no_score_has_no_mean():
    prices = bars()
    frame = forecasts(prices, M=0.02, N=0.02)
    frame.loc[3, "N-lo-95"] = -1.0  # a price below zero
    got = fc.evaluate(frame, panel=fc.load_panel(prices)).set_index("model")[OF_RETURNS]
    assert got.isna().to_numpy().tolist() == [[False] * 5, [True] * 5, [True] * 5]  # M, N, Naive
    flat = forecasts(prices, M=0.0)
    got = fc.evaluate(flat, panel=fc.load_panel(prices)).set_index("model")
    assert got[OF_RETURNS].isna().to_numpy().all() and got["crps"].to_list()[0] > 0


@pytest.mark.parametrize("price", [0.0, -37.63])
def test_an_outcome_of_zero_or_below_is_not_left_out_of_a_mean(price):
    """Or a stock that becomes worthless would improve the scores."""
    prices = bars()
    frame = forecasts(prices, M=0.02)
    frame.loc[frame.index[-4:], "y"] = price
    got = fc.evaluate(frame, panel=fc.load_panel(prices)).set_index("model").loc[["M"]]
    left_out = ["qlike", "fz0-0.05", "fz0-0.025", "log_score"]
    assert got[left_out].isna().to_numpy().all() and np.isfinite(got["crps"]).all()


def implied(distribution, quantiles=QUANTILES) -> Implied:
    return Implied(distribution.ppf(quantiles)[None], quantiles)


def below(distribution, probability: float) -> float:
    """The expected shortfall, by integration."""
    return distribution.expect(lambda x: x, ub=distribution.ppf(probability)) / probability


@pytest.mark.parametrize("quantiles", [QUANTILES, FEW])
def test_a_normal_distribution_is_read_exactly(quantiles):
    normal = stats.norm(0.3, 2.0)
    got = implied(normal, quantiles)
    assert got.second_moment() == pytest.approx(4.09, rel=1e-4)
    assert got.shortfall(0.025) == pytest.approx(below(normal, 0.025), rel=1e-4)
    outcomes = np.linspace(-9, 9, 37)
    some = Implied(np.tile(normal.ppf(quantiles), (37, 1)), quantiles)
    np.testing.assert_allclose(
        some.log_density(outcomes), stats.norm.logpdf(outcomes, 0.3, 2.0), atol=2e-3
    )


@pytest.mark.parametrize("dof", [3.0, 4.0, 6.0, 12.0])
def test_a_student_t_is_read_within_half_a_per_cent(dof):
    student = stats.t(dof, 0.1, 0.5)
    got = implied(student)
    assert got.second_moment() == pytest.approx(student.var() + 0.01, rel=0.005)
    assert got.shortfall(0.025) == pytest.approx(below(student, 0.025), rel=1e-6)
    assert got.shortfall(0.05) == pytest.approx(below(student, 0.05), rel=0.003)
    tail = student.ppf([0.001, 0.999])
    density = Implied(np.tile(student.ppf(QUANTILES), (2, 1)), QUANTILES).log_density(tail)
    np.testing.assert_allclose(density, stats.t.logpdf(tail, dof, 0.1, 0.5), atol=1e-3)


@pytest.mark.parametrize("distribution", [stats.t(4), stats.skewnorm(4), stats.laplace()])
def test_the_density_has_mass_one_and_the_moments_that_are_told(distribution):
    one = implied(distribution)
    edges = [-np.inf, *one.values[0], np.inf]

    def integral(power: int, upper: float = np.inf) -> float:
        return sum(
            integrate.quad(lambda x: x**power * np.exp(one.log_density([x])[0]), low, high)[0]
            for low, high in itertools.pairwise(edges)
            if high <= upper
        )

    assert integral(0) == pytest.approx(1, abs=1e-6)
    assert one.second_moment() == pytest.approx(integral(2), rel=1e-4)
    assert one.shortfall(0.05) == pytest.approx(integral(1, one.values[0, 1]) / 0.05, rel=1e-5)
