"""Effects of the calendar are found where there are some, and nowhere else."""

import numpy as np
import pandas as pd
import pytest
from dateutil.easter import easter

import forecaster as fc
from forecaster.series import infer_frequency
from forecaster.series.calendar.rhythms import rhythm_of
from forecaster.series.combination.nature import Nature
from forecaster.series.effects import (
    NO_EFFECTS,
    effects_of,
    effects_on,
    learn_calendar,
)
from forecaster.series.known_rows import KnownPriors, calendar_of
from forecaster.series.transform_by_name import choose_transform
from tests.frames import long

EASTERS = pd.to_datetime(["2020-04-12", "2021-04-04", "2022-04-17", "2023-04-09"])


def truth(days: pd.DatetimeIndex) -> np.ndarray:
    """What the days do to the logarithm of sales, other than the week."""
    out = np.zeros(len(days))
    out[(days.month == 12) & (days.day == 24)] = 1.5
    out[(days.month == 12) & (days.day == 25)] = -2.0
    out[days.isin(EASTERS)] = -1.5
    out[days.is_month_end] += 0.5
    return out


def simulated(count: int, rows: int, effects: float = 1.0, seed: int = 0):
    """Values by series with a level that wanders, a week, and shocks that all share."""
    rng = np.random.default_rng(seed)
    days = pd.date_range("2020-02-10", periods=rows)
    level = np.cumsum(0.02 * rng.standard_normal((count, rows)), 1)
    week = rng.standard_normal((count, 7))[:, np.arange(rows) % 7]
    noise = 0.1 * rng.standard_normal((count, rows)) + 0.05 * rng.standard_normal(rows)
    size = np.linspace(0.7, 1.3, count)[:, None] if count > 1 else np.ones((1, 1))
    return level + week + noise + effects * size * truth(days), days


def panel_of(z: np.ndarray, days: pd.DatetimeIndex) -> fc.Panel:
    return fc.load_panel(long({f"s{row}": np.exp(own) for row, own in enumerate(z)}, days))


def test_the_effects_that_made_a_panel_are_found():
    z, days = simulated(20, 1100)
    times = days.to_numpy()
    prior = learn_calendar([(own, times) for own in z])
    assert prior.groups == ("holidays", "month")
    found = np.array([effects_on(effects_of(prior, own, times), times) for own in z])
    for day, expected in [
        ("2021-12-24", 1.5), ("2022-12-25", -2.0), ("2022-04-17", -1.5), ("2021-06-30", 0.5),
        ("2021-06-20", 0.0), ("2021-12-20", 0.0),
    ]:  # fmt: skip
        assert found[:, days.get_loc(day)].mean() == pytest.approx(expected, abs=0.1), day
    # Each series has its own size, between 0.7 and 1.3 times the mean.
    assert found[:, days.get_loc("2022-12-25")].std() > 0.2


@pytest.mark.parametrize("seed", range(3))
def test_a_panel_or_a_random_walk_without_effects_has_none(seed):
    z, days = simulated(20, 800, effects=0.0, seed=seed)
    assert learn_calendar([(own, days.to_numpy()) for own in z]) == NO_EFFECTS
    walk = np.cumsum(0.02 * np.random.default_rng(seed).standard_normal(1500))
    days = pd.date_range("2019-02-10", periods=1500).to_numpy()
    assert learn_calendar([(walk, days)]) == NO_EFFECTS


def of_days(days: pd.DatetimeIndex) -> pd.Series:
    """Sales of each day: Saturdays are strong, Sundays weak, the week before Easter is very strong.

    The weeks before Christmas and Thanksgiving are strong, too.
    """
    sold = np.array([1.0, 1.0, 1.0, 1.1, 1.2, 1.5, 0.5])[days.day_of_week]
    easters = pd.to_datetime([easter(year) for year in range(days.year.min(), days.year.max() + 2)])
    ahead = (easters.to_numpy() - days.to_numpy()[:, None]) // np.timedelta64(1, "D")
    sold = sold * np.where(((ahead >= 0) & (ahead < 8)).any(1), 1.6, 1.0)
    sold *= np.where((days.month == 12) & (days.day > 14) & (days.day < 25), 1.6, 1.0)
    return pd.Series(sold, days)


def sold_by(freq: str, count: int, start: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The logarithms of what several shops sold in each step, and its true effects included."""
    rng = np.random.default_rng(seed)
    steps = of_days(pd.date_range(start, "2023-12-31")).resample(freq).sum()[1:-1]
    size = np.linspace(0.8, 1.2, count)[:, None]
    level = np.cumsum(0.01 * rng.standard_normal((count, len(steps))), 1)
    noise = 0.01 * rng.standard_normal((count, len(steps)))
    return level + noise + size * np.log(steps.to_numpy()), steps.index.to_numpy()


@pytest.mark.parametrize(
    ("freq", "start", "groups"),
    [
        ("MS", "2012-01-01", ("trading days", "holidays")),
        ("W-SUN", "2016-01-01", ("holidays",)),
        ("W-MON", "2016-01-01", ("holidays",)),
    ],
)
def test_weeks_and_months_have_effects_that_improve_forecasts(freq, start, groups):
    z, times = sold_by(freq, 9, start)
    horizon = 12 if freq == "MS" else 26
    known = times[:-horizon]
    prior = learn_calendar(
        [(own[:-horizon], known) for own in z], rhythm_of(infer_frequency(known))
    )
    assert set(groups) <= set(prior.groups)
    panel = panel_of(z[:, :-horizon], pd.DatetimeIndex(times[:-horizon]))
    plain = choose_transform("auto", panel)
    errors = [
        np.abs(np.log(known.apply(panel, horizon).base[:, -1]) - z[:, -horizon:]).mean()
        for known in (
            plain.with_learned(known=KnownPriors(calendar=one)).with_components(panel, horizon)
            for one in (prior, NO_EFFECTS)
        )
    ]
    assert errors[0] < 0.93 * errors[1]


def test_series_too_short_to_learn_from_do_not_choose_the_rhythm():
    z, days = simulated(8, 720)
    daily = [Nature(logarithmic=True, rhythm="D")] * 8
    rows = [(np.exp(own), days.to_numpy()) for own in z]
    weeks = pd.date_range("2022-01-02", periods=24, freq="W").to_numpy()
    short = [(np.ones(24), weeks)] * 9
    both = calendar_of([*daily, *[Nature(logarithmic=True, rhythm="W-SUN")] * 9], [*rows, *short])
    assert both.groups and both == calendar_of(daily, rows)
