"""The season of young series, from the older ones of their panel."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning
from forecaster.series.combination.young import (
    NO_SEASON,
    SeasonPrior,
    learn_season,
    phases_of,
    profile_of,
)

SEASON, HORIZON, OLD = 12, 6, 60
YOUNG = (4, 8, 14, 20)  # rows


def shops(seed: int, own: float, common: float) -> dict[str, np.ndarray]:
    """Return the sales of old and young shops, the horizon included; own and common: log season."""
    random = np.random.default_rng(seed)
    months = np.arange(OLD + HORIZON)
    shared = common * random.normal(size=SEASON)
    made: dict[str, np.ndarray] = {}
    for number in range(36):
        rows = OLD if number < 24 else YOUNG[number % len(YOUNG)]
        profile = shared + own * random.normal(size=SEASON)
        trend = random.uniform(-0.003, 0.008) * months
        noise = 0.05 * random.normal(size=len(months))
        y = 100 * np.exp(trend + profile[months % SEASON] + noise)
        made[f"{'old' if rows == OLD else 'young'}{number}"] = y[OLD - rows :]
    return made


def panel_of(series: dict[str, np.ndarray]) -> fc.Panel:
    dates = pd.date_range("2018-01-31", periods=OLD, freq="ME")
    return fc.load_panel(
        pd.concat(
            pd.DataFrame(
                {"unique_id": name, "ds": dates[OLD - len(y) + HORIZON :], "y": y[:-HORIZON]}
            )
            for name, y in series.items()
        )
    )


def errors(series: dict[str, np.ndarray], forecast: pd.DataFrame) -> dict[str, float]:
    """Return the mean absolute error of each young series, in units of its mean."""
    return {
        str(name): float(
            np.abs(of["LSTM"] - series[str(name)][-HORIZON:]).mean() / series[str(name)].mean()
        )
        for name, of in forecast.groupby("unique_id", sort=False)
        if str(name).startswith("young")
    }


@pytest.mark.slow
@pytest.mark.parametrize(("own", "common"), [(0.05, 0.2), (0.15, 0.0)])
def test_young_series_are_forecast_with_a_season(own, common):
    """Errors are about half of those of the last value; the season is common, or each one's own."""
    series = shops(1, own, common)
    panel = panel_of(series)
    model = fc.fit(panel, fc.Config(horizon=HORIZON))
    assert model.transform.young.season == SEASON and any(model.transform.young.helps)
    found = errors(series, fc.predict(model, panel))
    naive = {
        name: float(np.abs(y[-HORIZON - 1] - y[-HORIZON:]).mean() / y.mean())
        for name, y in series.items()
    }
    some = [name for name in found if common or len(series[name]) - HORIZON > SEASON]
    assert np.mean([found[name] for name in some]) < 0.7 * np.mean([naive[name] for name in some])
    profiled = {name for name, one in model.transform.natures.items() if one.profile}
    assert profiled and all(name.startswith("young") for name in profiled)


@pytest.mark.slow
def test_a_panel_without_a_season_has_no_profile_and_old_ones_keep_their_bits():
    series = shops(2, 0.0, 0.0)
    panel = panel_of(series)
    model = fc.fit(panel, fc.Config(horizon=HORIZON))
    effects = [np.ptp(one.profile) for one in model.transform.natures.values() if one.profile]
    assert max(effects, default=0.0) < 0.1  # of noise with deviation 0.05
    old = [name for name in panel.ids if name.startswith("old")]
    assert not any(model.transform.natures[name].profile for name in old)


def test_the_prior_is_the_truth_of_many_series():
    random = np.random.default_rng(3)
    phases = np.arange(OLD) % SEASON
    shared = 0.2 * random.normal(size=SEASON)
    rows = [
        (shared + 0.1 * random.normal(size=SEASON))[phases]
        + 0.05 * random.normal(size=OLD)
        + 0.03 * random.normal(size=OLD).cumsum()
        for _ in range(60)
    ]
    prior = learn_season(rows, [phases] * 60, SEASON, "M", 12)
    np.testing.assert_allclose(prior.mean, shared - shared.mean(), atol=0.05)
    _, spreads = np.array(prior.examples).T
    assert 0.06 < np.median(spreads) < 0.14
    own = shared + 0.1 * random.normal(size=SEASON)
    own -= own.mean()
    for count in (1, 3, 9, 14, 23):
        effects, unsure = profile_of(
            prior, own[phases[:count]] + 0.05 * random.normal(size=count), phases[:count]
        )
        assert (np.abs(effects - own) < 4 * unsure).all() and (unsure > 0).all()
        if count > SEASON:
            assert np.abs(effects - own).mean() < np.abs(np.array(prior.mean) - own).mean()
    assert learn_season(rows[:7], [phases] * 7, SEASON, "M", 12) == NO_SEASON
    assert learn_season([own[:20] for own in rows], [phases[:20]] * 60, SEASON, "M", 6) == NO_SEASON


def test_a_young_series_is_independent_of_other_young_ones_and_saved(tmp_path):
    series = shops(4, 0.05, 0.2)
    panel = panel_of(series)
    model = fc.fit(panel, fc.Config(horizon=HORIZON))
    made = fc.predict(model, panel)
    loaded = fc.load(fc.save(model, tmp_path / "model"))
    pd.testing.assert_frame_equal(fc.predict(loaded, panel), made, check_exact=True)
    young = [name for name in panel.ids if name.startswith("young")][:2]
    alone = fc.predict(model, panel.only(young))
    both = made[made["unique_id"].isin(young)].reset_index(drop=True)
    np.testing.assert_allclose(alone["LSTM"], both["LSTM"], rtol=1e-9)


def test_a_new_shop_is_forecast_with_the_season_of_the_others():
    series = shops(5, 0.05, 0.2)
    new = [name for name in series if name.startswith("young")][-1]
    known = {name: y for name, y in series.items() if name != new}
    model = fc.fit(panel_of(known), fc.Config(horizon=HORIZON))
    with pytest.warns(ForecasterWarning, match="the one trained on all"):
        made = fc.predict(model, panel_of(series).only([new]))
    flat = float(np.abs(series[new][-HORIZON - 1] - series[new][-HORIZON:]).mean())
    assert errors(series, made)[new] * series[new].mean() < 0.7 * flat


@pytest.mark.parametrize(
    "change",
    [
        {"mean": [float("nan")] * 12},
        {"examples": [[0.1, -1.0]]},
        {"examples": []},
        {"smoothing": 99},
        {"rhythm": "X"},
    ],
)
def test_a_damaged_prior_is_an_error(change):
    sound = SeasonPrior((0.1,) * 12, ((0.1, 0.1),), 2, "M", (True, True))
    assert SeasonPrior.from_json(list(sound)) == sound
    with pytest.raises((ValueError, TypeError)):
        SeasonPrior.from_json(list(sound._replace(**change)))


def test_phases_are_those_of_dates_and_of_whole_numbers():
    months = pd.date_range("2020-03-31", periods=3, freq="ME").to_numpy()
    np.testing.assert_array_equal(phases_of(months, "M", 12), [2, 3, 4])
    np.testing.assert_array_equal(phases_of(np.arange(11, 14), "", 12), [11, 0, 1])
