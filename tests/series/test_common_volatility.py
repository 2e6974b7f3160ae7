"""The model of volatility that all prices share: what it learns, and what it must not see."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.series import Histories, Panel
from forecaster.series.causal import shift
from forecaster.series.common_volatility import (
    FEWEST_PEERS,
    CommonVolatility,
    learn_common_volatility,
    state_of,
    volatility_terms,
)
from tests.common_market import frame, index, log_volatilities, panel

ROWS, HELD_BACK = 900, 250


@pytest.fixture(scope="module")
def market() -> Panel:
    return panel(20, ROWS)


@pytest.fixture(scope="module")
def learned(market) -> CommonVolatility:
    return learn(market)


def learn(market: Panel, horizon: int = 2) -> CommonVolatility:
    made = learn_common_volatility(market, horizon, np.full(len(market.ids), HELD_BACK))
    assert made is not None
    return made


def log_scale(model: CommonVolatility, market: Panel) -> np.ndarray:
    histories = Histories.from_panel(market)
    z = np.log(market.channel(market.target))
    return model.log_scale(market, histories, z - shift(z, 1))


def better_than_a_month(model: CommonVolatility, market: Panel) -> float:
    """Return its error beside that of each series' volatility of the last month, means apart."""
    z = np.log(market.channel("close"))
    own, _ = volatility_terms(market, Histories.from_panel(market), z - shift(z, 1))
    truth = log_volatilities(len(market.ids), ROWS, 0)[:, 1:]
    off = [
        (guess[:, :-1] - truth)[:, -HELD_BACK:] for guess in (log_scale(model, market)[..., 0], own)
    ]
    ours, plain = (float(np.std(each - each.mean(1, keepdims=True))) for each in off)
    return ours / plain


def test_it_forecasts_the_volatility_of_days_that_it_was_not_learned_from(market, learned):
    assert better_than_a_month(learned, market) < 0.85


def test_the_state_is_that_of_the_latest_day_with_enough_peers(market, learned):
    """A day on which nine of twenty have arrived is none; the state of the day before stands."""
    mask = market.mask.copy()
    mask[FEWEST_PEERS - 1 :, -1] = False
    late = dataclasses.replace(market, mask=mask).with_peers(market.ids)
    assert len(state_of(late.peers).times) == len(state_of(market.peers).times) - 1
    made = log_scale(learned, late.only(market.ids[:1]))
    assert np.isfinite(made[0, -1]).all()


def test_without_a_state_it_says_nothing(market, learned):
    nobody = dataclasses.replace(market, peers=None)
    assert np.isnan(log_scale(learned, nobody)).all()
    few = market.with_peers(market.ids[: FEWEST_PEERS - 1])
    assert np.isnan(log_scale(learned, few)).all()
    mask = market.peers.mask.copy()
    mask[:, 800:] = False
    stopped = dataclasses.replace(market.peers, mask=mask)
    made = log_scale(learned, dataclasses.replace(market, peers=stopped))
    assert np.isfinite(made[:, 799:804]).all() and np.isnan(made[:, 810:]).all()


def test_few_series_or_rows_have_no_model(market):
    held_back = np.full(20, 100)
    assert learn_common_volatility(dataclasses.replace(market, peers=None), 2, held_back) is None
    some = market.with_peers(market.ids[: FEWEST_PEERS - 1])
    assert learn_common_volatility(some, 2, held_back) is None
    short = market.until(market.times[502])
    assert learn_common_volatility(short, 2, held_back) is None


def test_an_index_shows_the_market_to_few_series():
    """Four series, too few to show the market themselves, beside an index of volatility."""
    bars = fc.load_panel(pd.concat([frame(4, ROWS), index(ROWS)])).masked()
    market = bars.with_market("VIX", forecast=False)
    market = market.with_peers(market.ids)
    model = learn(market)
    assert not model.peers and model.market == ("VIX",)
    assert better_than_a_month(model, market) < 0.7
