"""How large errors are by phase and by level, and the bands that follow from them."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.series.combination.anchors import by_target_step, combine
from forecaster.series.combination.combined import combined
from forecaster.series.combination.error_sizes import error_sizes

DAY, HORIZON = 24, 30


def queue(seed: int = 0, days: int = 20, night: float = 0.0, noise: float = 0.1) -> np.ndarray:
    """Calls by the hour, of which none, or few, come at night."""
    hour = np.arange(days * DAY) % DAY
    busy = np.where((hour >= 8) & (hour < 19), 0.5 + np.exp(-(((hour - 12) / 3) ** 2)), night)
    random = np.random.default_rng(seed).standard_normal(len(hour))
    return 1000 * busy * np.exp(noise * random)


def is_night(steps: np.ndarray) -> np.ndarray:
    return (steps % DAY < 8) | (steps % DAY >= 19)


def test_nights_are_forecast_as_zero_for_sure_once_they_repeat():
    z = queue()
    sizes = error_sizes(combine(z, (DAY,), HORIZON).base, z, (DAY,))
    ahead = np.arange(len(z))[:, None] + np.arange(1, HORIZON + 1)
    assert (sizes.closed[5 * DAY :] == is_night(ahead)[5 * DAY :]).all()
    assert not sizes.closed[: DAY + 1].any()
    assert ((sizes.relative == 0) == sizes.closed).all()


def net_load(days: int = 60, seed: int = 0) -> np.ndarray:
    """What a grid takes beside solar power, which clouds make hard to forecast by day."""
    random = np.random.default_rng(seed)
    hour = np.arange(days * DAY) % DAY
    sun = np.clip(np.sin(np.pi * (hour - 6) / 12), 0, None)
    clouds = np.repeat(random.beta(3, 2, days), DAY)
    return (
        20 + 5 * np.sin(2 * np.pi * hour / DAY) - 15 * sun * clouds + random.normal(size=len(sun))
    )


def test_errors_grow_with_the_forecast():
    z = queue(days=40)
    made = combined(z, (DAY,), 2, nonnegative=True)
    by_level = error_sizes(made.base, z, (DAY,)).relative
    noon, morning = (by_level[30 * DAY + hour - 1, 0] for hour in (12, 8))
    assert noon / morning == pytest.approx(1.5 / 0.67, rel=0.25)


def test_one_hard_day_of_the_week_is_no_outlier():
    """Its errors are ten times as large as those of others; bands held a quarter of them."""
    random = np.random.default_rng(2)
    z = random.normal(size=(5, 7 * 150)) * np.where(np.arange(7 * 150) % 7 == 3, 10.0, 1.0)
    made = combined(z, (7,), 1)
    inside = np.abs(by_target_step(made.base) - z[..., None]) < 1.28 * by_target_step(
        made.scale * made.relative
    )
    assert 0.65 < inside[:, 7 * 50 + 3 :: 7].mean() < 0.95


def test_errors_differ_by_the_hour():
    """In units of the scale the largest deviation is about twice the smallest, not four times."""
    by_hour: list[np.ndarray] = []
    for seed in range(4):
        z = net_load(seed=seed)
        made = combined(z, (DAY, 7 * DAY), HORIZON)
        unit = by_target_step(made.scale * made.relative)
        errors = (z[:, None] - by_target_step(made.base)) / unit
        by_hour.append(errors[30 * DAY :].reshape(-1, DAY, HORIZON))
    spread = np.sqrt(np.square(np.concatenate(by_hour)).mean((0, 2)))
    assert spread.max() / spread.min() < 2.3
    assert 0.8 < spread.mean() < 1.2


@pytest.mark.parametrize("seed", range(5))
def test_other_series_keep_their_bits(seed):
    random = np.random.default_rng(seed)
    z = 500 + 100 * random.standard_normal(400)
    z[random.random(400) < 0.05] = 0  # zeros that follow no season
    outage = np.where((np.arange(400) > 200) & (np.arange(400) < 230), 0.0, queue(seed, 17)[:400])
    outage[is_night(np.arange(400))] = 100.0
    for values, season in ((z, 7), (outage, 7), (z * 0, 7)):
        plain, sized = (combined(values, (season,), 9, nonnegative=one) for one in (False, True))
        assert (sized.relative == 1).all()
        for before, after in zip(plain, sized, strict=True):
            np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("season", [5, 12, DAY])
def test_errors_of_random_walks_do_not_differ(season):
    z = np.random.default_rng(season).normal(size=(3, 700)).cumsum(1)
    assert (combined(z, (season,), HORIZON).relative == 1).all()


@pytest.mark.parametrize("of", [queue, net_load])
def test_nothing_depends_on_later_steps_or_on_other_series(of):
    z = np.array([of(days=30, seed=seed) for seed in range(2)])
    closes = of is queue
    whole = combined(z, (DAY, 7 * DAY), HORIZON, nonnegative=closes)
    assert (whole.relative != 1).any()
    for rows in (60, 200, 333, 600):
        shorter = z[0].copy()
        shorter[rows:] = np.nan
        padded = combined(np.array([shorter, z[1]]), (DAY, 7 * DAY), HORIZON, nonnegative=closes)
        alone = combined(z[0, :rows], (DAY, 7 * DAY), HORIZON, nonnegative=closes)
        for own, one, other in zip(whole, alone, padded, strict=True):
            np.testing.assert_array_equal(own[0, :rows], one)
            np.testing.assert_array_equal(own[0, :rows], other[0, :rows])


def test_a_shop_that_opens_on_a_day_that_was_closed_is_no_longer_sure():
    z = np.where(np.arange(7 * 30) % 7 == 6, 0.0, 900.0 + np.arange(7 * 30) % 5)
    z[6 + 7 * 20] = 700.0
    closed = error_sizes(combine(z, (7,), 1).base, z, (7,)).closed[:, 0]
    sundays = closed[5::7]
    assert sundays[10:21].all()
    assert not sundays[21:24].any()
    assert sundays[24:].all()


@pytest.mark.slow
def test_bands_of_open_hours_hold_their_share_and_those_of_nights_are_zero():
    days = 30
    series = {f"q{n}": np.rint(queue(n, days + 2)) for n in range(4)}
    ds = pd.date_range("2025-03-03", periods=(days + 2) * DAY, freq="h")
    frame = pd.concat(pd.DataFrame({"unique_id": u, "ds": ds, "y": y}) for u, y in series.items())
    known = fc.load_panel(frame[frame.ds < ds[days * DAY]])
    config = fc.Config(horizon=2 * DAY, hidden=2, lookback=24, epochs=1, members=1)
    made = fc.predict(fc.fit(known, config, seed=0), known, level=[80]).merge(frame)
    night = is_night(made.ds.dt.hour.to_numpy())
    inside = (made.y >= made["LSTM-lo-80"]) & (made.y <= made["LSTM-hi-80"])
    assert 0.7 < inside[~night].mean() < 0.95
    bounds = made.loc[night, ["LSTM-lo-80", "LSTM", "LSTM-hi-80"]].to_numpy()
    assert (bounds == 0).all()
    assert np.isfinite(made.select_dtypes("number").to_numpy()).all()
