"""Series that are listed only after the last cutoff change no forecast of the others."""

import functools

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.forecasting import FORECAST_BY, Method
from forecaster.series import with_peers

SERIES, MOST_LATER, HORIZON, WINDOWS = 14, 300, 2, 3
LATER = (1, 60, MOST_LATER)
# Prices need the rows of two years for a common model of volatility.
ROWS = {("prices", True): 530, ("prices", False): 20}
COLUMNS = {"prices": "close", "values": "y", "counts": "y"}


def config(*, networks: bool) -> fc.Config:
    return fc.Config(
        hidden=2, lookback=15, burn_in=5, horizon=HORIZON, epochs=2, patience=2, batch_size=64,
        members=1, validation=60 if networks else None,
    )  # fmt: skip


@functools.cache
def world(kind: str, seed: int, *, networks: bool) -> pd.DataFrame:
    """Series of which some begin late or end early, and others that are listed at the very end."""
    random = np.random.default_rng(seed)
    rows = ROWS.get((kind, networks), 110 if networks else 22)
    shape = SERIES + MOST_LATER, rows
    if kind == "prices":
        volatility = 0.01 * np.exp(random.normal(0, 0.05, rows).cumsum())
        values = 50 * np.exp((volatility * random.normal(size=shape)).cumsum(1))
    else:
        values = random.poisson(1.5, shape) if kind == "counts" else random.normal(50, 5, shape)
    first, last = np.zeros(len(values), int), np.full(len(values), rows)
    first[1:SERIES:3] = random.integers(1, rows // 3, len(first[1:SERIES:3]))
    last[2:SERIES:5] = random.integers(rows // 2, rows - 8, len(last[2:SERIES:5]))
    first[SERIES:] = rows - random.integers(1, HORIZON + 1, MOST_LATER)
    days = pd.bdate_range("2020-01-01", periods=rows)
    return pd.concat(
        pd.DataFrame({"unique_id": name, "ds": days[low:high], COLUMNS[kind]: row[low:high]})
        for name, row, low, high in zip(names(MOST_LATER), values, first, last, strict=True)
    )


def names(later: int) -> list[str]:
    return [f"s{row:03d}" if row < SERIES else f"t{row:03d}" for row in range(SERIES + later)]


def prices(kind: str, seed: int, later: int, *, networks: bool) -> pd.DataFrame:
    frame = world(kind, seed, networks=networks)
    return frame[frame["unique_id"].isin(names(later))]


@functools.cache
def forecasts(
    kind: str, seed: int, later: int, *, networks: bool, refit: bool = False
) -> pd.DataFrame:
    panel = fc.load_panel(prices(kind, seed, later, networks=networks))
    return fc.cross_validation(panel, config(networks=networks), WINDOWS, refit=refit)


def check(kind: str, seed: int, later: int, *, networks: bool, refit: bool = False) -> None:
    before = forecasts(kind, seed, 0, networks=networks, refit=refit)
    after = forecasts(kind, seed, later, networks=networks, refit=refit)
    if kind != "prices":
        assert (before[FORECAST_BY] == Method.OWN).any() == networks
    pd.testing.assert_frame_equal(before, after, check_exact=True)


@pytest.mark.filterwarnings("ignore:.*series")
@pytest.mark.parametrize(
    ("kind", "networks"), [("prices", True), ("prices", False), ("values", False)]
)
def test_series_listed_later_change_no_forecast(kind, networks):
    check(kind, 0, 60, networks=networks)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*series")
@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("networks", [True, False])
@pytest.mark.parametrize("kind", COLUMNS)
def test_neither_do_they_in_random_panels(kind, networks, refit):
    for seed in (1, 2):
        for later in LATER:
            check(kind, seed, later, networks=networks, refit=refit)


def test_the_state_of_the_market_is_that_of_series_with_rows_in_the_last_month():
    days, end = pd.bdate_range("2020-01-01", periods=80), 78
    lasts = {f"s{row:02d}": end for row in range(9)} | {"ended": 50, "gone": 56, "rests": 57}
    spans = {name: days[: last + 1] for name, last in lasts.items()}
    spans |= {"new": days[[end]], "later": days[end + 1 :]}
    assert days[56] < days[end] - pd.Timedelta(days=31) == days[57]
    panel = fc.load_panel(
        pd.concat(
            pd.DataFrame({"unique_id": name, "ds": times, "close": 5.0 + np.arange(len(times))})
            for name, times in spans.items()
        )
    )
    peers = with_peers(panel.until(days[end])).peers
    assert peers is not None and set(peers.ids) == spans.keys() - {"ended", "gone", "later"}
