"""Classical models in the combination: kept in files, without looking ahead, weighed by errors."""

import json

import numpy as np
import pytest

from forecaster.classical import fit_ces, fit_ets
from forecaster.series.calendar.gaps import open_slots, regular_spacing, without_gaps
from forecaster.series.combination.anchors import combine, log_errors, shares_of
from forecaster.series.combination.combined import widened_for
from forecaster.series.combination.experts import (
    NO_EXPERTS,
    Experts,
    Row,
    basic_season,
    experts_ahead,
    fit_experts,
)
from forecaster.series.combination.nature import Nature, common_seasons, with_common
from forecaster.series.combination.sample import Sample


def seasonal(rows: int = 60, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    steps = np.arange(rows)
    return 50 + 0.3 * steps + 8 * np.sin(steps * np.pi / 6) + random.normal(size=rows)


def test_series_with_several_seasons_have_no_models():
    assert [basic_season(seasons) for seasons in ((), (12,), (52,), (24, 168))] == [1, 12, 1, 0]
    assert fit_experts([seasonal(), seasonal()], [0, 12])[0] == NO_EXPERTS


def test_models_come_back_from_json():
    fitted = fit_experts([seasonal(), seasonal(9), np.ones(3)], [12, 1, 1])
    for one in fitted:
        assert Experts.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert fitted[0].ets and fitted[0].theta and fitted[0].ces
    assert fitted[2] == Experts(learned=3)


@pytest.mark.parametrize(
    "change",
    [
        {"ets": [["none", 1, False, [0.1, 0.2], 1.0]]},
        {"ets": [["none", 10**9, False, [0.1], 1.0]]},
        {"ces": ["none", 1, [0.5, 0.5], [1.0] * 100]},
        {"ces": ["other", 1, [0.5, 0.5], [1.0, 1.0]]},
        {"theta": [0.5, 0.5, 1.0, [1.0] * 1000, False]},
    ],
)
def test_damaged_models_are_refused(change):
    whole = fit_experts([seasonal()], [12])[0].to_json()
    with pytest.raises((ValueError, TypeError)):
        Experts.from_json(whole | change)


def test_later_rows_change_no_earlier_forecast():
    y = seasonal()
    experts = fit_experts([y[:40]], [12])
    before = experts_ahead([y[:50]], experts, 6)[0]
    changed = np.concatenate([y[:50], -y[50:]])
    for one, other in zip(before, experts_ahead([changed], experts, 6)[0], strict=True):
        np.testing.assert_allclose(one, other[:50], rtol=1e-9)


def test_the_better_model_weighs_more_over_a_panel_and_with_errors_of_its_own():
    random = np.random.default_rng(1)
    y = [random.normal(size=200).cumsum() for _ in range(12)]

    def forecasts(z: np.ndarray) -> list[np.ndarray]:
        knows = np.append(z[1:], z[-1])[:, None] + 0.01 * random.normal(size=(len(z), 1))
        return [knows, z[:, None] + random.normal(size=(len(z), 1))]

    both = [forecasts(z) for z in y]
    shares = shares_of(
        np.array([log_errors(z, (), 1, of, 100) for z, of in zip(y, both, strict=True)])
    )
    assert shares[1] == 1 and (shares[[0, 2]] < 0.01).all()
    base = combine(y[0], (), 1, 0.0, both[0]).base  # equal shares at first
    error = np.abs(base[:-1, 0] - y[0][1:])
    assert error[150:].mean() < 0.05 * error[:10].mean()


def test_a_model_without_forecasts_has_no_weight():
    z = seasonal()
    nothing = np.full((len(z), 3), np.nan)
    alone = combine(z, (12,), 3).base
    np.testing.assert_array_equal(combine(z, (12,), 3, experts=[nothing, nothing]).base, alone)


def test_missing_rows_are_filled_so_that_the_season_keeps_its_length():
    steps = np.arange(50)
    there = np.delete(steps, [10, 11, 30])
    wave = np.sin(2 * np.pi * steps / 7)
    filled, rows = without_gaps(wave[there], there, 1.0, 7)
    np.testing.assert_allclose(filled, wave, atol=1e-12)
    np.testing.assert_array_equal(rows, there)
    # later rows change no earlier step
    np.testing.assert_array_equal(without_gaps(wave[there][:20], there[:20], 1.0, 7)[1], rows[:20])


def test_years_without_rows_are_not_filled_whole():
    days = np.concatenate([np.arange(20), 10_000 + np.arange(20)])
    filled, rows = without_gaps(np.arange(40.0), days, 1.0, 7)
    assert len(filled) < 50
    assert (days % 7 == rows % 7).all()


def test_gaps_are_filled_as_one_row_after_the_other_would_be():
    random = np.random.default_rng(0)
    for season in (2, 7, 52, 300):
        times = np.cumsum(random.choice([1, 1, 1, 2, 3, 30, 200], size=40))
        values = random.normal(size=40)
        filled, rows = without_gaps(values, times, 1.0, season)
        slowly = np.full(len(filled), np.nan)
        slowly[rows] = values
        for step in np.flatnonzero(np.isnan(slowly)):
            slowly[step] = slowly[step - season if step >= season else step - 1]
        np.testing.assert_array_equal(filled, slowly)


@pytest.mark.parametrize(
    ("season", "spacing"), [(86_400, 0.0001), (2**31 - 2, 1e-6), (7, 1e-308), (10**6, 0.001)]
)
def test_far_more_rows_than_there_are_are_not_filled(season, spacing):
    values = np.arange(80.0)
    filled, rows = without_gaps(values, np.arange(80), spacing, season)
    assert len(filled) <= 20_000
    np.testing.assert_array_equal(filled[rows], values)


def test_weekends_are_no_gaps():
    weekdays = np.arange("2024-01-01", "2024-06-01", dtype="datetime64[D]")
    weekdays = weekdays[np.is_busday(weekdays)].astype("datetime64[ns]")
    spacing, slots = regular_spacing(weekdays), open_slots(weekdays)
    filled, _ = without_gaps(np.arange(len(weekdays)), weekdays, spacing, 5, slots)
    assert len(filled) == len(weekdays)
    days = np.arange("2024-01-01", "2024-06-01", dtype="datetime64[D]").astype("datetime64[ns]")
    assert regular_spacing(days) == 86_400.0


def test_common_seasons_are_for_series_that_do_not_clearly_show_their_own():
    shown = {f"s{n}": Nature(seasons=(12,)) for n in range(8)} | {"none": Nature()}
    assert common_seasons(shown) == (12,)
    assert common_seasons({**shown, **{f"n{n}": Nature() for n in range(40)}}) == ()
    assert with_common(Nature(), (12,), 30).seasons == (12,)
    assert with_common(Nature(seasons=(7,)), (12,), 7 * 20 - 1).seasons == (12,)
    assert with_common(Nature(seasons=(7,)), (12,), 7 * 20).seasons == (7,)
    assert with_common(Nature(seasons=(12, 24)), (12,), 60).seasons == (12, 24)


def test_errors_are_larger_than_those_that_models_were_fitted_to():
    """The fewer rows a model is fitted to, the more its errors there say too little."""

    def optimism(rows: list[Row], nature: Nature) -> float:
        return Sample(rows, [nature] * len(rows)).learned(6, 1.0).optimism

    nature = Nature(seasons=(12,))
    short = optimism([seasonal(40, seed) for seed in range(20)], nature)
    long = optimism([seasonal(240, seed) for seed in range(20)], nature)
    assert 1.0 < long < short < 1.3 and long < 1.15
    assert optimism([np.ones(40)], nature) == 1.0
    counts = Nature(counts=True, nonnegative=True)  # whose variance rests on no fit
    assert optimism([np.zeros(30)] * 9, counts) == 1.0


def test_the_scale_of_fitted_errors_is_widened_and_later_ones_less_and_less():
    scale = np.ones((40, 2))
    widened = widened_for(20, scale, 1.2)
    np.testing.assert_allclose(widened[:20], 1.2)
    assert (np.diff(widened[19:, 0]) < 0).all() and widened[-1, 0] == pytest.approx(1.0)
    np.testing.assert_array_equal(widened_for(20, scale[:30], 1.2), widened[:30])
    np.testing.assert_array_equal(widened_for(0, scale, 1.2), scale)


def test_models_alone_are_searched_for_exactly_and_others_roughly():
    rows = [seasonal(seed=seed) for seed in range(4)]
    together = fit_experts(rows, [12] * 4)
    assert [one.ets for one in together] == fit_ets(rows, 12, exact=False)
    assert [one.ces for one in together] == fit_ces(rows, 12, exact=False)
    exact = fit_ces(rows, 12)
    assert [one.ces for one in fit_experts(rows, [12] * 4, ["ces"])] == exact
    assert exact != [one.ces for one in together]
    assert [one.ets for one in fit_experts(rows, [12] * 4, ["ets"])] == fit_ets(rows, 12)
