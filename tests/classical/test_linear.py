"""The direct linear model: finds what made a series, and draws short series to their panel."""

import numpy as np
import pytest

from forecaster.classical.linear import fit_linear, learn_pool, linear_ahead

PATTERN = np.array([5.0, -1.0, 3.0, 2.0])
TIME = np.arange(80)


def ahead(rows, seasons=(4,), horizon=6, *, yearly=False):
    """Forecasts made at every row of each series, fitted on all rows."""
    pool = learn_pool(rows, seasons, horizon, yearly=yearly)
    models = fit_linear(rows, seasons, pool, yearly=yearly)
    return linear_ahead(rows, models, seasons, horizon, [0] * len(rows), yearly=yearly)


def weekly(count: int, rows: int, seed: int = 0) -> list[np.ndarray]:
    """Series with a season of seven steps around a level that they return to."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        y = 3 * random.normal(size=7)[np.arange(rows) % 7] + random.normal(size=rows)
        made.append(50 + y)
    return made


@pytest.mark.parametrize(
    ("law", "seasons"),
    [
        (PATTERN[TIME % 4], (4,)),
        (PATTERN[TIME % 4] - 0.5 * TIME, (4,)),
        (PATTERN[TIME % 4] + np.where(TIME % 12 < 6, 2.0, -2.0), (4, 12)),
        (3.0 + 2 * TIME, ()),
        (0 * TIME + 7.0, (4,)),
    ],
)
def test_a_law_without_noise_is_found(law, seasons):
    made = ahead([law[:-6]], seasons)[0][-1]
    np.testing.assert_allclose(made, law[-6:], atol=0.05 * max(np.ptp(law[:12]), 1e-9))


def test_a_short_series_is_drawn_to_its_panel():
    """Twelve rows cannot show what two hundred rows of each neighbour do."""
    neighbours, short = weekly(12, 200), weekly(1, 30, seed=9)[0]
    together, alone = (
        fit_linear([short], (7,), learn_pool(rows, (7,), 3, yearly=False), yearly=False)[0]
        for rows in ([*neighbours, short], [short])
    )
    pool = learn_pool(neighbours, (7,), 3, yearly=False).weights
    near, far = (np.abs(one.weights - pool).mean() for one in (together, alone))
    assert near < 0.5 * far


def test_one_outlier_hardly_moves_the_model():
    (y,) = weekly(1, 200)
    hit = y.copy()
    hit[100] += 50  # twice the level
    plain, robust = (fit_linear([one], (7,), learn_pool([one], (7,), 1, yearly=False),
                                yearly=False) for one in (y, hit))  # fmt: skip
    before, after = (linear_ahead([y], one, (7,), 1, [0], yearly=False)[0][60:, 0]
                     for one in (plain, robust))  # fmt: skip
    assert np.abs(after - before).mean() < 0.2 * np.abs(np.diff(y)).mean()


@pytest.mark.parametrize("seasons", [(), (7,), (7, 14)])
@pytest.mark.parametrize(("factor", "shift"), [(100.0, 0.0), (1e-9, 0.0), (1.0, -3e3), (-2.0, 5.0)])
def test_units_change_nothing(seasons, factor, shift):
    rows = weekly(3, 60)
    plain, other = (ahead(some, seasons) for some in (rows, [factor * y + shift for y in rows]))
    for one, two in zip(plain, other, strict=True):
        np.testing.assert_allclose((two - shift) / factor, one, rtol=1e-3, atol=1e-2)


def test_the_year_before_helps_days_that_follow_the_year():
    day = np.arange(4 * 365)
    season = 10 * np.exp(-(((day % 364) - 180) ** 2) / 200)
    rows = [season + np.random.default_rng(n).normal(size=len(day)) for n in range(3)]
    errors = []
    for yearly in (True, False):
        made = ahead(rows, (7,), 14, yearly=yearly)
        errors.append(
            np.mean([np.abs(one[3 * 365 : -14, 13] - y[3 * 365 + 14 :]).mean()
                     for one, y in zip(made, rows, strict=True)])
        )  # fmt: skip
    assert errors[0] < 0.8 * errors[1]


def test_steps_with_few_known_outcomes_keep_the_season():
    """Of 48 rows with a season of 24, the steps beyond one season have fewer than 24 outcomes."""
    random = np.random.default_rng(0)
    time = np.arange(88)
    wave = 10 * np.sin(2 * np.pi * time / 24 + random.uniform(0, 6, (20, 1)))
    rows = wave + random.normal(size=wave.shape)
    made = [one[-1] for one in ahead(list(rows[:, :48]), (24,), 40)]
    errors = np.abs(made - wave[:, 48:]).mean(0)
    assert errors[24:].mean() < 1.3 * errors[:24].mean()
