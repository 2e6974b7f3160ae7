"""The season of young series, from the older ones of their panel."""

import dataclasses
import json
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning, ModelError
from forecaster.series.combination.nature import Nature, natures_of
from forecaster.series.combination.young import (
    NO_SEASON,
    SeasonPrior,
    learn_season,
    profile_of,
    steps_of,
)
from forecaster.series.features.known_effects import learn_effects
from forecaster.series.features.transforms import Transform
from forecaster.series.known.smoothing_errors import GRID
from forecaster.series.panel.covariates import Scaling
from tests.slow import rest_slow

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


@pytest.mark.parametrize(
    ("own", "common", "seed"), rest_slow([(0.05, 0.2, 2), (0.05, 0.2, 3), (0.3, 0.0, 1)])
)
def test_bands_of_young_series_hold_their_share(own, common, seed):
    """Where the season is common to all, and where each series has its own."""
    series = shops(seed, own, common)
    panel = panel_of(series)
    model = fc.fit(panel, fc.Config(horizon=HORIZON))
    made = fc.predict(model, panel, level=[80])
    young = made[made["unique_id"].str.startswith("young")]
    came = np.concatenate([series[str(name)][-HORIZON:] for name in young["unique_id"].unique()])
    inside = (came >= young["LSTM-lo-80"]) & (came <= young["LSTM-hi-80"])
    assert 0.64 < inside.mean() < 0.9
    width = np.log(young["LSTM-hi-80"] / young["LSTM-lo-80"]).mean()
    if common:  # four deviations of noise and own season together are 0.28
        assert width < 0.25


def test_what_is_unsure_of_the_level_is_unsure():
    """Of a series that was seen in one month only, every other month may be higher or lower."""
    phases = np.arange(OLD) % SEASON
    random = np.random.default_rng(5)
    rows = [0.3 * random.normal(size=SEASON)[phases] for _ in range(40)]
    rows = [row + 0.03 * random.normal(size=OLD) for row in rows]
    prior = learn_season(rows, [np.arange(OLD)] * 40, SEASON, "M", 6)
    assert prior.season == SEASON
    one, whole = (profile_of(prior, rows[0][:count], phases[:count]) for count in (1, SEASON))
    assert one.unsure[0] < 0.1 and np.median(one.unsure[1:]) == pytest.approx(0.42, rel=0.25)
    assert whole.unsure.max() < 0.1
    assert 0.02 < whole.noise < 0.05


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
    steps = np.arange(OLD)
    phases = steps % SEASON
    shared = 0.2 * random.normal(size=SEASON)
    rows = [
        (shared + 0.1 * random.normal(size=SEASON))[phases]
        + 0.05 * random.normal(size=OLD)
        + 0.03 * random.normal(size=OLD).cumsum()
        for _ in range(60)
    ]
    prior = learn_season(rows, [steps] * 60, SEASON, "M", 12)
    np.testing.assert_allclose(prior.mean, shared - shared.mean(), atol=0.05)
    _, spreads = np.array(prior.examples).T
    assert 0.06 < np.median(spreads) < 0.14
    own = shared + 0.1 * random.normal(size=SEASON)
    own -= own.mean()
    for count in (1, 3, 9, 14, 23):
        effects, unsure, _ = profile_of(
            prior, own[phases[:count]] + 0.05 * random.normal(size=count), phases[:count]
        )
        # The level at the end contains the effects of the rows that it is smoothed from.
        weights = (1 - GRID[prior.smoothing][0]) ** np.arange(count)[::-1]
        wrong = effects - own
        wrong -= np.average(wrong[phases[:count]], weights=weights)
        assert (np.abs(wrong) < 4 * unsure + 1e-9).all() and (count == 1 or (unsure > 0).all())
        if count > SEASON:
            assert np.abs(effects - own).mean() < np.abs(np.array(prior.mean) - own).mean()
    assert learn_season(rows[:7], [steps] * 7, SEASON, "M", 12) == NO_SEASON
    assert learn_season([own[:20] for own in rows], [steps[:20]] * 60, SEASON, "M", 6) == NO_SEASON


@pytest.mark.parametrize("shared", ["walk", "dip"])
def test_what_series_have_in_common_at_one_time_is_no_season(shared):
    """The prior is not used below a season, and hardly above: it would repeat the movement."""
    steps = np.arange(OLD)
    used: list[bool] = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        if shared == "walk":
            common = 0.2 * random.normal(size=OLD).cumsum()
        else:
            begin = random.integers(OLD - 18, OLD - 8)
            common = np.where((steps >= begin) & (steps < begin + 6), -0.8, 0.0)
        rows = [
            common + 0.03 * random.normal(size=OLD).cumsum() + 0.05 * random.normal(size=OLD)
            for _ in range(40)
        ]
        prior = learn_season(rows, [steps] * 40, SEASON, "M", HORIZON)
        used.append(prior.helps[0])
        assert np.ptp(prior.mean or [0.0]) < 0.4
    assert not any(used)


def test_a_season_is_found_beside_common_movements_and_where_series_end_at_other_times():
    random = np.random.default_rng(10)
    steps = np.arange(96)
    common = 0.02 * random.normal(size=96).cumsum()
    season = 0.2 * random.normal(size=SEASON)
    rows = [common + season[steps % SEASON] + 0.1 * random.normal(size=96) for _ in range(40)]
    assert learn_season(rows, [steps] * 40, SEASON, "M", HORIZON).helps == (True, True)
    ends = random.integers(48, 97, 40)
    begins = [max(int(end) - 60, 0) for end in ends]
    parts = [slice(*ends) for ends in zip(begins, ends.tolist(), strict=True)]
    some = [z[part] for z, part in zip(rows, parts, strict=True)]
    assert any(learn_season(some, [steps[part] for part in parts], SEASON, "M", HORIZON).helps)


def test_the_prior_does_not_depend_on_the_order_of_the_series():
    """Of 202 series every second one is learned from."""
    random = np.random.default_rng(9)
    season = 0.2 * random.normal(size=SEASON)
    steps = np.arange(40)
    frame = pd.concat(
        pd.DataFrame(
            {
                "unique_id": f"s{number}",
                "ds": steps,
                "y": np.exp(season[steps % SEASON] + 0.1 * random.normal(size=40)),
            }
        )
        for number in range(202)
    )
    panel = fc.load_panel(frame)
    found: list[np.ndarray] = []
    for part in (panel, panel.only(panel.ids[::-1])):
        prior = learn_effects(part, natures_of(part, (SEASON,)), Scaling(), HORIZON).young
        assert prior.season == SEASON
        found.append(np.array([*prior.mean, *np.ravel(prior.examples), *prior.helps]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


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


@pytest.mark.slow
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
        {"mean": [1e9] * 12},
        {"mean": ["0.1"] * 12},
        {"mean": [0.1]},
        {"mean": [0.1] * 500},
        {"examples": [[0.1, -1.0]]},
        {"examples": [[1e300, 0.1]]},
        {"examples": [[0.1, 0.0]]},
        {"examples": [[0.1, 0.1]] * 31},
        {"examples": []},
        {"smoothing": 99},
        {"smoothing": 3},
        {"smoothing": True},
        {"rhythm": "X"},
        {"rhythm": ""},
        {"rhythm": ["M"]},
        {"helps": [1, 0]},
        {"helps": [False, False]},
        {"spacing": 2.0},
        {"spacing": float("nan")},
        {"spacing": "0"},
    ],
)
def test_a_damaged_prior_is_an_error(change):
    sound = SeasonPrior((0.1,) * 12, ((0.1, 0.1),), 2, "M", (True, True))
    assert SeasonPrior.from_json(json.loads(json.dumps(sound))) == sound
    with pytest.raises((ValueError, TypeError)):
        SeasonPrior.from_json(list(sound._replace(**change)))


@pytest.mark.parametrize(
    "change",
    [
        {"profile": (0.1,) * 11},
        {"unsure": (0.1,) * 11},
        {"unsure": ()},
        {"profile": (), "unsure": (0.1,) * 12},
        {"profile": (0.1,) * 4, "unsure": (0.1,) * 4},
        {"profile": (1e9,) * 12},
        {"profile": (1e200,) * 12, "logarithmic": False},
        {"profile": ("0.1",) * 12},
        {"unsure": (-0.1,) * 12},
        {"unsure": (float("inf"),) * 12},
        {"noise": -0.1},
        {"noise": float("nan")},
        {"noise": "0.1"},
        {"rhythm": "X"},
        {"rhythm": 1},
        {"rhythm": "Q"},
        {"rhythm": "", "spacing": 2.0},
        {"seasons": (4,)},
    ],
)
def test_a_damaged_profile_is_an_error(change):
    prior = SeasonPrior((0.1,) * 12, ((0.1, 0.1),), 2, "M", (True, True))
    nature = Nature(True, (12,), 2.6e6, profile=(0.1,) * 12, unsure=(0.1,) * 12, rhythm="M")
    sound = Transform("combined", natures=MappingProxyType({"a": nature}), young=prior)
    assert Transform.from_dict(sound.to_dict()) == sound
    natures = MappingProxyType({"a": dataclasses.replace(nature, **change)})
    with pytest.raises((ValueError, TypeError)):
        Transform.from_dict(dataclasses.replace(sound, natures=natures).to_dict())


def test_damage_to_what_young_series_share_is_a_clear_error_of_load(tmp_path):
    series = shops(7, 0.05, 0.2)
    fc.save(fc.fit(panel_of(series), fc.Config(horizon=HORIZON)), tmp_path / "model")
    path = next(p for p in (tmp_path / "model").rglob("*.json") if '"young"' in p.read_text())
    whole = path.read_text()
    some = next(
        name for name, of in json.loads(whole)["transform"]["natures"].items() if of["profile"]
    )
    for name in ("profile", "unsure"):
        rest = json.loads(whole)
        rest["transform"]["natures"][some][name].pop()
        path.write_text(json.dumps(rest))
        with pytest.raises(ModelError, match=r"transform: profile.*fit. again"):
            fc.load(tmp_path / "model")


def test_series_that_no_longer_move_do_not_spoil_the_prior():
    """Values without an error, or with huge ones, still make a prior that can be saved."""
    random = np.random.default_rng(8)
    steps = np.arange(8 * SEASON)
    shared = np.tile(random.normal(size=SEASON), 8)
    rows = [shared + 0.3 * random.normal(size=len(steps)) for _ in range(20)]
    still = np.where(steps < SEASON, shared, 1.0)
    large = shared + 20 * random.normal(size=len(steps))
    prior = learn_season([*rows, still, large], [steps] * 22, SEASON, "M", 6)
    assert prior.season == SEASON
    assert SeasonPrior.from_json(json.loads(json.dumps(prior))) == prior


def test_steps_are_those_of_dates_and_of_whole_numbers():
    months = pd.date_range("2020-03-31", periods=3, freq="ME").to_numpy()
    np.testing.assert_array_equal(steps_of(months, "M", 0.0) % 12, [2, 3, 4])
    np.testing.assert_array_equal(steps_of(np.arange(11, 14), "", 1.0), [11, 12, 13])
    np.testing.assert_array_equal(steps_of(np.array([-10, 0, 10, 20]), "", 10.0), [-1, 0, 1, 2])


@pytest.mark.slow
def test_whole_numbers_that_are_further_apart_have_the_same_season():
    series = shops(6, 0.05, 0.2)
    series["young alone"] = series["old0"][-HORIZON - 1 :]  # one row
    made: dict[int, pd.Series] = {}
    for spacing in (1, 2, 10):
        times = (spacing > 1) + spacing * np.arange(OLD)
        frame = pd.concat(
            pd.DataFrame(
                {"unique_id": name, "ds": times[OLD - len(y) + HORIZON :], "y": y[:-HORIZON]}
            )
            for name, y in series.items()
        )
        panel = fc.load_panel(frame)
        model = fc.fit(panel, fc.Config(horizon=HORIZON))
        assert model.transform.young.spacing == spacing
        assert model.transform.natures["young alone"].profile
        made[spacing] = fc.predict(model, panel)["LSTM"]
    for spacing in (2, 10):
        np.testing.assert_allclose(made[spacing], made[1], rtol=1e-9)
