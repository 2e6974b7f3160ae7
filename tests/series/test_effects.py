"""Effects of the calendar and of covariates are found where there are some, and nowhere else."""

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
    NO_RESPONSES,
    History,
    effects_of,
    effects_on,
    learn_calendar,
    learn_responses,
    responses_of,
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


PROMOTION, PRICE = 0.4, -0.08  # in logarithms: of a promotion, and of a price that rises by 1


def promoted_series(count: int, rows: int, seed: int = 0) -> list[History]:
    """Logarithms with a level that wanders, a week, promotions, and prices around 10."""
    random = np.random.default_rng(seed)
    made: list[History] = []
    for number in range(count):
        numbers = np.column_stack([random.random(rows) < 0.15, 10 + random.normal(size=rows)])
        own = np.array([PROMOTION, PRICE]) * (0.5 + number / max(count - 1, 1))
        week = random.normal(size=7)[np.arange(rows) % 7]
        level = 0.03 * random.normal(size=rows).cumsum()
        z = level + week + 0.1 * random.normal(size=rows) + numbers @ own
        made.append(History(z, numbers, np.ones(rows, bool), 7, 1.0, counts=False))
    return made


def test_the_responses_that_made_a_panel_are_found():
    histories = promoted_series(20, 300)
    prior = learn_responses(histories)
    found = np.array([responses_of(prior, one) for one in histories])
    np.testing.assert_allclose(found.mean(0), [PROMOTION, PRICE], rtol=0.05)
    own = np.outer(np.linspace(0.5, 1.5, 20), [PROMOTION, PRICE])
    np.testing.assert_allclose(found[:, 0], own[:, 0], atol=0.1)
    assert np.corrcoef(found[:, 1], own[:, 1])[0, 1] > 0.9


def test_a_series_that_was_never_promoted_responds_as_the_others_do():
    histories = promoted_series(20, 300)
    prior = learn_responses(histories)
    one = histories[10]
    never = one._replace(numbers=one.numbers * [0, 1], values=one.values - one.numbers[:, 0] * 0.41)
    tiny = one._replace(values=one.values[:3], numbers=one.numbers[:3], there=one.there[:3])
    for new in (never, tiny):
        assert responses_of(prior, new)[0] == pytest.approx(PROMOTION, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_chance_is_no_response(seed):
    random = np.random.default_rng(seed)
    for one_of in (lambda: random.random(200) < 0.1, lambda: random.normal(size=200).cumsum()):
        chance = [
            History(random.normal(size=200).cumsum(), np.column_stack([one_of(), one_of()]) * 1.0,
                    np.ones(200, bool), season=1, level=1.0, counts=False)
            for _ in range(20)
        ]  # fmt: skip
        found = np.array(learn_responses(chance).mean)
        assert np.abs(found).max(initial=0.0) < 0.1  # of the deviation of a day's change


@pytest.mark.parametrize("rows", [24, 60, 200])
def test_a_smooth_number_seems_not_to_explain_smooth_series(rows):
    """Both keep their direction for long, so that they go together by chance."""
    found = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        smooth = random.normal(size=(11, rows)).cumsum(1).cumsum(1)
        histories = [
            History(own, smooth[:1].T, np.ones(rows, bool), season=1, level=1.0, counts=False)
            for own in smooth[1:]
        ]
        found += len(learn_responses(histories).mean)
    assert found <= 2


def test_what_is_always_the_same_twice_there_or_without_change_breaks_nothing():
    histories = [
        one._replace(numbers=np.column_stack([one.numbers, one.numbers, np.full(300, 3.0)]))
        for one in promoted_series(9, 300)
    ]
    histories.append(histories[0]._replace(values=np.zeros(300)))
    prior = learn_responses(histories)
    found = np.array(responses_of(prior, histories[4]))
    assert found[0] + found[2] == pytest.approx(PROMOTION, rel=0.1)
    assert np.isfinite(found).all()
    assert learn_responses([histories[-1]]) == NO_RESPONSES


def sold(series: int, rows: int, mean: float, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sales by month with promotions of half as much again, and the plan one year on."""
    random = np.random.default_rng(seed)
    months = pd.date_range("2020-01-31", periods=rows + 6, freq="ME")
    sales, plans = [], []
    for number in range(series):
        promoted = (random.random(len(months)) < 0.25) * 1.0
        promoted[-6:] = [0, 1, 0, 1, 0, 1]
        y = mean * (1 + 0.5 * promoted) * np.exp(0.1 * random.normal(size=len(months)))
        y = random.poisson(y).astype(float) if mean < 10 else y
        keys = {"unique_id": f"s{number:02d}", "ds": months}
        sales.append(pd.DataFrame({**keys, "y": y}).iloc[:rows])
        plans.append(pd.DataFrame({**keys, "promotion": promoted}))
    return pd.concat(sales), pd.concat(plans)


@pytest.mark.parametrize("mean", [100, 3])
def test_short_series_and_counts_are_forecast_with_their_promotions(mean, tmp_path):
    sales, plans = sold(20, 24, mean)
    panel = fc.load_panel(sales).with_future(plans)
    model = fc.fit(panel, fc.Config(horizon=6))
    assert set(model.report["forecast_by"]) == {"combination"}
    fc.save(model, tmp_path / "model")
    forecast = fc.predict(fc.load(tmp_path / "model"), panel)
    ahead = forecast["LSTM"].to_numpy().reshape(20, 6).mean(0)
    assert ahead[1::2].mean() / ahead[::2].mean() == pytest.approx(1.5, abs=0.1)
    none = panel.with_future(plans.assign(promotion=plans["promotion"] * (plans["ds"] < "2022")))
    flat = fc.predict(model, none)["LSTM"].to_numpy().reshape(20, 6).mean(0)
    np.testing.assert_allclose(flat[1::2], ahead[::2], rtol=0.05)
