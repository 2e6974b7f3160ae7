"""Series that are not prices are forecast with their seasons, without looking ahead."""

import numpy as np
import pytest

import forecaster as fc
from forecaster.series.combination.components import Combination, components_ahead
from forecaster.series.combination.nature import Nature, common_seasons, with_common
from forecaster.series.transform_by_name import choose_transform
from forecaster.series.transforms import Transform, Transformed
from tests.frames import long

DAY = 24


def panel_of(rows: list[np.ndarray]) -> fc.Panel:
    """Series of unequal lengths that end at the same time."""
    named = {f"s{n:03d}": y for n, y in enumerate(rows)}
    return fc.load_panel(long(named, np.arange(max(map(len, rows)))))


def fitted(rows: list[np.ndarray], seasons: tuple[int, ...], horizon: int) -> Transform:
    """What a fit learns, with components fitted on the first half of each series."""
    panel = panel_of(rows)
    known = choose_transform("combined", panel, seasons).learned_from(panel, horizon)
    return known.with_components(panel, horizon, panel.mask.sum(1) // 2)


def forecast(rows: list[np.ndarray], seasons: tuple[int, ...], horizon: int) -> Transformed:
    """Forecasts of components that are fitted on all rows."""
    panel = panel_of(rows)
    known = fitted(rows, seasons, horizon).with_components(panel, horizon)
    return known.apply(panel, horizon)


def last(rows: list[np.ndarray], seasons: tuple[int, ...], horizon: int) -> np.ndarray:
    """Forecasts made at the last row of each series."""
    return forecast(rows, seasons, horizon).base[:, -1]


def walks(count: int, rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, rows)).cumsum(1)


@pytest.mark.parametrize(
    ("rows", "seasons", "horizon", "most"),
    [(100, (), 6, 1.05), (80, (12,), 6, 1.06), (18, (12,), 6, 1.12), (60, (7, 14), 5, 1.06)],
)
def test_random_walks_are_forecast_nearly_flat(rows, seasons, horizon, most):
    z = np.concatenate([walks(15, rows + horizon, seed) for seed in range(3)])
    came, known = z[:, rows:], z[:, :rows]
    base = last(list(known), seasons, horizon)
    error, naive = (np.abs(one - came).mean() for one in (base, known[:, -1:]))
    assert error < most * naive


def test_a_young_series_takes_its_season_from_its_first_year_and_from_its_panel():
    """It has seen a year and two months, in which models of its own find no season."""
    month = np.arange(66)
    random = np.random.default_rng(0)
    z = 100 * np.exp(0.3 * random.normal(size=12)[month % 12] + 0.03 * random.normal(size=(12, 66)))
    rows = [y[:60] for y in z[:8]] + [y[46:60] for y in z[8:]]
    error = np.abs(last(rows, (12,), 6)[8:] - z[8:, 60:]).mean()
    assert error < 0.8 * np.abs(z[8:, 59:60] - z[8:, 60:]).mean()


def test_a_sparse_series_may_be_forecast_as_zero():
    z = np.where(np.random.default_rng(0).random(60) < 0.8, 0.0, 3.3)
    nature = fitted([z], (), 4).natures["s000"]
    assert nature.sparse and not nature.counts and nature.blend is not None
    assert nature.components.kind.names[-1] == "zero" and nature.blend.weights[-1] > 0.2
    alone = nature.by_component("zero")
    assert alone is not None
    assert (components_ahead([z], [alone.components], 3, [0])[0][0] == 0).all()
    assert "zero" not in Combination.for_rows(60, 60, (), None, sparse=False).names


def queue(seed: int, days: int) -> np.ndarray:
    """Calls by the hour, of which none come at night."""
    hour = np.arange(days * DAY) % DAY
    busy = np.where((hour >= 8) & (hour < 19), 0.5 + np.exp(-(((hour - 12) / 3) ** 2)), 0.0)
    return np.rint(1000 * busy * np.exp(0.1 * np.random.default_rng(seed).normal(size=len(hour))))


def test_nights_are_zero_for_sure_and_bands_of_open_hours_hold_their_share():
    z = [queue(seed, 22) for seed in range(4)]
    made = forecast([one[: 20 * DAY] for one in z], (DAY,), 2 * DAY)
    base, scale = made.base[:, -1], made.scale[:, -1]
    came = np.array([one[20 * DAY :] for one in z])
    assert (base[came == 0] == 0).all() and (scale[came == 0] == 0).all()
    inside = np.abs(came - base)[came > 0] < 1.2816 * scale[came > 0]
    assert 0.7 < inside.mean() < 0.95
    assert (made.base[:, : 2 * DAY, 0] != 0).any()  # not before they repeated


KINDS = {
    "walk": (walks(2, 90), (7,)),
    "positive": (100 + walks(2, 90), (12,)),
    "none": (walks(2, 90), ()),
    "several": (np.sin(np.arange(90) / 2) + 0.1 * walks(2, 90), (7, 14)),
    "closed": (np.where(np.arange(90) % 7 == 6, 0.0, 50.0 + walks(2, 90)), (7,)),
    "sparse": (np.where(np.random.default_rng(0).random((2, 90)) < 0.7, 0, 3.5), (7,)),
    "late": (np.append(np.zeros((2, 65)), 9.5 + walks(2, 25), 1), (7,)),
    "counts": (np.random.default_rng(0).poisson(1.0, (2, 90)).astype(float), (7,)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_later_changes_what_is_known_at_a_row(kind):
    z, seasons = KINDS[kind]
    known, cut = fitted(list(z[:, :60]), seasons, 5), 70
    whole = known.apply(panel_of(list(z)), 5)
    edited = np.where(np.arange(90) < cut, z, z[:, ::-1] * 7)
    for some, bits in ((edited, 0.0), (z[:, :cut], 1e-9)):
        made = known.apply(panel_of(list(some)), 5)
        for part in ("features", "base", "scale"):
            one, two = (getattr(each, part)[:, :cut] for each in (made, whole))
            np.testing.assert_allclose(one, two, rtol=bits, atol=bits)


@pytest.mark.parametrize("kind", KINDS)
def test_no_bit_depends_on_the_series_that_are_computed_beside_it(kind):
    z, seasons = KINDS[kind]
    rows = [z[0], *(z[1][:count] for count in (3, 30, 41))]
    known = fitted(rows, seasons, 4)
    together = known.apply(panel_of(rows), 4)
    for number, y in enumerate(rows):
        panel = panel_of(rows).only([f"s{number:03d}"])
        again = known.with_components(panel, 4, panel.mask.sum(1) // 2)
        alone = again.apply(panel, 4)
        for part in ("features", "base", "scale"):
            np.testing.assert_array_equal(
                getattr(alone, part)[0, -len(y) :], getattr(together, part)[number, -len(y) :]
            )


@pytest.mark.parametrize("seasons", [(), (4,), (4, 8)])
def test_odd_series_have_finite_forecasts(seasons):
    ramp = np.arange(30.0)
    rows = [
        np.ones(1), np.ones(2), ramp[:3], np.zeros(30), np.full(30, -7.0), -1e3 - ramp,
        ramp - 15, 1e120 * (1 + ramp), 1e-120 * (1 + ramp % 3), np.append(np.zeros(29), 1.0),
        np.where(ramp == 15, 1e12, 1.5), -ramp % 5 - 0.5,
    ]  # fmt: skip
    made = forecast(rows, seasons, 3)
    assert np.isfinite(made.base[:, -1]).all() and np.isfinite(made.scale[:, -1]).all()
    assert (made.scale[:, -1] >= 0).all()
    np.testing.assert_allclose(made.base[3:5, -1].T, [[0.0, -7.0]] * 3, atol=0.01)


def test_common_seasons_are_for_series_that_do_not_clearly_show_their_own():
    shown = {f"s{n}": Nature(seasons=(12,)) for n in range(8)} | {"none": Nature()}
    assert common_seasons(shown) == (12,)
    assert common_seasons({**shown, **{f"n{n}": Nature() for n in range(40)}}) == ()
    assert with_common(Nature(), (12,), 30).seasons == (12,)
    assert with_common(Nature(seasons=(7,)), (12,), 7 * 20 - 1).seasons == (12,)
    assert with_common(Nature(seasons=(7,)), (12,), 7 * 20).seasons == (7,)
    assert with_common(Nature(seasons=(12, 24)), (12,), 60).seasons == (12, 24)
