"""The model of volatility that all prices share: what it learns, and what it must not see."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.series import Histories, Panel
from forecaster.series.causal import shift
from forecaster.series.prices.common_volatility import (
    FEWEST_PEERS,
    CommonVolatility,
    state_of,
    volatility_terms,
)
from forecaster.series.prices.learning import learn_common_volatility
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
    histories = Histories.of(market)
    z = np.log(histories.values[:, :, market.channels.index(market.target)])
    return model.log_scale(market, histories, z - shift(z, 1))


def test_it_forecasts_the_volatility_of_days_that_it_was_not_learned_from(market, learned):
    """Better than each series' own volatility of the last month, whose mean is corrected."""
    truth = log_volatilities(20, ROWS, 0)[:, 1:]
    made = log_scale(learned, market)[:, :-1, 0]
    histories = Histories.of(market)
    z = np.log(market.channel("close"))
    own, _ = volatility_terms(market, histories, z - shift(z, 1))

    def error(guess: np.ndarray) -> float:
        off = (guess - truth)[:, -HELD_BACK:]
        return float(np.std(off - off.mean(1, keepdims=True)))

    assert error(made) < 0.85 * error(own[:, :-1])


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


@pytest.fixture(scope="module")
def with_index() -> Panel:
    """Return four series beside an index of volatility, too few to show the market themselves."""
    bars = frame(4, ROWS)
    made = fc.load_panel(pd.concat([bars, index(ROWS)])).masked().with_market("VIX", forecast=False)
    return made.with_peers(made.ids)


def test_an_index_shows_the_market_to_few_series(with_index):
    model = learn(with_index)
    assert not model.peers and model.market == ("VIX",)
    truth = log_volatilities(4, ROWS, 0)[:, 1:]
    made = log_scale(model, with_index)
    histories = Histories.of(with_index)
    z = np.log(with_index.channel("close"))
    own, _ = volatility_terms(with_index, histories, z - shift(z, 1))

    def error(guess: np.ndarray) -> float:
        off = (guess[:, :-1] - truth)[:, -HELD_BACK:]
        return float(np.std(off - off.mean(1, keepdims=True)))

    assert error(made[..., 0]) < 0.7 * error(own)
