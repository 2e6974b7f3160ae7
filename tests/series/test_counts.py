"""What the counts of a panel have in common, and how far each series is shrunk to it."""

import numpy as np
import pytest

import forecaster as fc
from forecaster.series.combination.counts import count_forecasts, learn_counts, vary_as_counts
from forecaster.series.combination.nature import Nature, as_usual
from tests.frames import long

ROWS, HOURS = 60, 1344


def flat(rows: list[np.ndarray], horizon: int = 3) -> list[np.ndarray]:
    """Return the combination of each series: its mean so far."""
    return [
        np.repeat((z.cumsum() / np.arange(1, len(z) + 1))[:, None], horizon, axis=1) for z in rows
    ]


def mixed(seed: int = 0) -> list[np.ndarray]:
    """Return slow parts, one sale in twelve months, and parts sold in packs of twelve."""
    random = np.random.default_rng(seed)
    slow = [random.poisson(1 / 12, ROWS) * 1.0 for _ in range(20)]
    return slow + [12.0 * random.poisson(0.6, ROWS) for _ in range(20)]


def test_slow_parts_do_not_take_the_mean_and_the_variance_of_packs():
    rows = mixed()
    combinations = flat(rows)
    prior = learn_counts(rows, combinations)
    for number in range(20):
        made, deviation = count_forecasts(rows[number], combinations[number], prior)
        assert made[-1, 0] == pytest.approx(rows[number].mean(), abs=0.25)
        assert deviation[-1, 0] ** 2 < 1.3
    made, deviation = count_forecasts(rows[-1], combinations[-1], prior)
    assert 8 < deviation[-1, 0] ** 2 / made[-1, 0] < 16  # of packs of twelve


@pytest.mark.parametrize(("changes", "all_rows"), [(False, 1.0), (True, 0.0)])
def test_old_rows_are_evidence_only_where_rates_last(changes, all_rows):
    random = np.random.default_rng(1)
    rows: list[np.ndarray] = []
    for _ in range(200):
        rates = random.gamma(0.5, 2.0, ROWS // 6) if changes else random.gamma(0.5, 2.0)
        rows.append(random.poisson(np.repeat(rates, 6 if changes else ROWS)) * 1.0)
    nothing = [np.zeros((ROWS, 3))] * len(rows)
    assert learn_counts(rows, nothing).all_rows == all_rows


def test_long_series_without_a_zero_are_counts_in_a_panel_of_counts_if_they_vary_as_counts():
    random = np.random.default_rng(3)
    steady = np.rint(50 + 2 * random.standard_normal(ROWS))
    often = np.maximum(random.poisson(6.0, ROWS), 1.0)
    large = random.poisson(500.0, ROWS) * 1.0
    assert vary_as_counts(often) and vary_as_counts(large) and not vary_as_counts(steady)
    parts = {f"part {number}": random.poisson(1.0, ROWS) for number in range(9)}
    y = {**parts, "often": often, "steady": steady, "large": large}
    panel = fc.load_panel(long(y, np.arange(ROWS)))
    natures = {
        name: Nature.from_rows(times, values, panel.frequency, ())
        for name, (values, times) in zip(panel.ids, panel.rows(), strict=True)
    }
    made = as_usual(natures, panel, (), counts=True)
    assert {name for name, nature in made.items() if nature.counts} == {*parts, "often"}
    assert not made["often"].logarithmic and made["steady"].logarithmic
    unusual = as_usual(natures, panel, (), counts=False)
    assert not unusual["often"].counts


def launched(seed: int = 5) -> list[np.ndarray]:
    """Return Poisson counts of 3 to 10 a row; every second series begins with zeros."""
    random = np.random.default_rng(seed)
    rows: list[np.ndarray] = []
    for number in range(60):
        z = random.poisson(random.uniform(3.0, 10.0), ROWS) * 1.0
        z[: random.integers(20, 56) if number % 2 else 0] = 0.0
        rows.append(z)
    return rows


def test_the_first_sale_of_a_new_product_is_no_dispersion_and_zeros_before_it_no_demand():
    rows = launched()
    nothing = [np.zeros((ROWS, 3))] * len(rows)
    prior = learn_counts(rows, nothing)
    assert prior.share == 0.0 and prior.dispersion < 1.8
    for number, (z, own) in enumerate(zip(rows, nothing, strict=True)):
        made, deviation = count_forecasts(z, own, prior._replace(decay=0.05, weight=0.0))
        assert deviation[-1, 0] ** 2 / made[-1, 0] < 5
        since = z[np.flatnonzero(z)[0] :]
        if number % 2 and len(since) < 10:
            assert made[-1, 0] == pytest.approx(since.mean(), rel=0.1)
