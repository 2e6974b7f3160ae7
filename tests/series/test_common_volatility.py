"""The model of volatility that all prices share: what it learns, and what it must not see."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.series import Histories, Panel
from forecaster.series.causal import shift
from forecaster.series.prices.common_volatility import CommonVolatility, peers_among, with_peers
from forecaster.series.prices.learning_volatility import _divided, learn_common_volatility
from forecaster.series.prices.volatility_terms import (
    FEWEST_PEERS,
    INDEX_TERMS,
    OWN_TERMS,
    STATE_TERMS,
    state_of,
    volatility_terms,
)
from tests.common_market import frame, index, log_volatilities, panel

ROWS, HELD_BACK = 900, 250
TERMS = len(OWN_TERMS) + len(STATE_TERMS)


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


def test_two_days_ahead_are_wider_than_one(market, learned):
    made = log_scale(learned, market)[:, 100:]
    assert np.median(made[..., 1] - made[..., 0]) == pytest.approx(np.log(2) / 2, abs=0.1)


def test_no_term_sees_a_later_row(market, learned):
    cut = 700
    values = market.values.copy()
    values[:, cut:] *= np.random.default_rng(5).uniform(0.5, 2, values[:, cut:].shape)
    changed = dataclasses.replace(market, values=values).with_peers(market.ids)
    before, after = log_scale(learned, market), log_scale(learned, changed)
    np.testing.assert_array_equal(before[:, :cut], after[:, :cut])
    assert (before[:, cut:] != after[:, cut:]).any()


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


def test_days_of_training_lie_before_all_days_that_choose_the_penalty():
    """Also where series are of unequal length, or end before the others."""
    market = panel(4, 600)
    mask = market.mask.copy()
    mask[1, :300] = False  # young
    mask[2, 500:] = False  # ended
    mask[3, ::3] = False  # with gaps
    histories = Histories.of(dataclasses.replace(market, mask=mask))
    rows, horizon = mask.sum(1), 5
    held_back = np.array([150, 75, 125, 100])
    early, late = _divided(histories, horizon, held_back)
    outcomes = [
        histories.positions[row, step + 1 : step + horizon + 1] for row, step in np.argwhere(early)
    ]
    assert early.any() and late.any()
    assert max(map(max, outcomes)) < histories.positions[late].min()
    for row, count in enumerate(held_back):
        steps = np.flatnonzero(early[row])
        assert not len(steps) or steps.max() + horizon < mask.shape[1] - count
        assert not late[row, : mask.shape[1] - count].any()
    assert rows.min() > 0


def test_what_does_not_hold_in_a_later_year_is_not_learned(market):
    """In the rows held back, here, the largest moves are on the days of the smallest before."""
    values = market.values.copy()
    close = market.channels.index("close")
    changes = np.diff(np.log(values[..., close]), axis=1)
    late = changes[:, -HELD_BACK:]
    by_size, ranks = np.argsort(-np.abs(late), 1), np.argsort(np.argsort(np.abs(late), 1), 1)
    changes[:, -HELD_BACK:] = np.take_along_axis(late, np.take_along_axis(by_size, ranks, 1), 1)
    path = np.log(values[:, :1, close]) + np.cumsum(changes, axis=1)
    scale = np.exp(path) / values[:, 1:, close]
    values[:, 1:, :4] *= scale[..., None]
    broken = dataclasses.replace(market, values=values).with_peers(market.ids)

    def size(model: CommonVolatility) -> float:
        return float(np.abs(np.array(model.weights)[:, 1:]).sum())

    assert size(learn(broken)) < 0.5 * size(learn(market))


def test_peers_with_other_times_say_nothing(market, learned):
    other = dataclasses.replace(market.peers, times=np.arange(ROWS))
    made = log_scale(learned, dataclasses.replace(market, peers=other))
    assert np.isnan(made).all()


def test_few_series_or_rows_have_no_model(market):
    held_back = np.full(20, 100)
    assert learn_common_volatility(dataclasses.replace(market, peers=None), 2, held_back) is None
    some = market.with_peers(market.ids[: FEWEST_PEERS - 1])
    assert learn_common_volatility(some, 2, held_back) is None
    short = market.until(market.times[502])
    assert learn_common_volatility(short, 2, held_back) is None


def test_prices_without_ranges_and_volumes_have_one_too(market):
    close = fc.load_panel(market.to_frame()[["unique_id", "ds", "close"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = learn(close.with_peers(close.ids))
    assert np.isfinite(log_scale(model, close.with_peers(close.ids))[:, 2:]).all()


def test_the_number_of_terms_is_the_declared_one(market):
    histories = Histories.of(market)
    z = np.log(market.channel("close"))
    _, terms = volatility_terms(market, histories, z - shift(z, 1))
    assert len(list(terms)) == TERMS


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


def test_an_index_adds_to_what_many_series_show():
    """The error of the volatility of days that were not learned from, beside twelve series."""
    bars = frame(12, ROWS, share=0.95)
    plain = fc.load_panel(bars).masked()
    plain = plain.with_peers(plain.ids)
    beside = fc.load_panel(pd.concat([bars, index(ROWS)])).masked()
    beside = beside.with_market("VIX", forecast=False)
    beside = beside.with_peers(beside.ids)
    truth = log_volatilities(12, ROWS, 0, 0.95)[:, 1:]

    def error(market: Panel) -> float:
        off = log_scale(learn(market), market)[:, :-1, 0] - truth
        return float(np.std(off[:, -HELD_BACK:]))

    assert error(beside) < 0.9 * error(plain)


def test_no_term_sees_a_later_row_of_an_index(with_index):
    model, cut = learn(with_index), 700
    values = with_index.market.values.copy()
    values[:, cut:] *= np.random.default_rng(5).uniform(0.5, 2, values[:, cut:].shape)
    changed = dataclasses.replace(with_index.market, values=values)
    before = log_scale(model, with_index)
    after = log_scale(model, dataclasses.replace(with_index, market=changed))
    np.testing.assert_array_equal(before[:, :cut], after[:, :cut])
    assert (before[:, cut:] != after[:, cut:]).any()


def test_where_an_index_has_no_rows_only_few_series_depend_on_it(with_index):
    market = with_index.market
    mask = market.mask & (market.times >= market.times[300])
    late = dataclasses.replace(market, mask=mask)
    made = log_scale(learn(with_index), dataclasses.replace(with_index, market=late))
    assert np.isnan(made[:, :300]).all() and np.isfinite(made[:, 302:]).all()
    many = dataclasses.replace(panel(12, ROWS), market=late)
    assert np.isfinite(log_scale(learn(many), many)[:, 2:]).all()


def test_later_rows_of_an_index_do_not_make_an_early_one_too_old(with_index):
    """A month apart at first, then daily: the usual gap is not known in advance."""
    market = with_index.market
    mask = market.mask.copy()
    mask[:, :400] &= np.arange(400) % 20 == 0
    sparse = dataclasses.replace(with_index, market=dataclasses.replace(market, mask=mask))
    model = learn(with_index)
    early = sparse.until(sparse.times[350])
    np.testing.assert_array_equal(log_scale(model, sparse)[:, :351], log_scale(model, early))
    assert np.isfinite(log_scale(model, early)[:, 300:]).all()


def test_each_index_has_terms_of_its_own(with_index):
    values = np.concatenate([with_index.market.values, 1 / with_index.market.values])
    mask = np.concatenate([with_index.market.mask] * 2)
    two = dataclasses.replace(with_index.market, ids=("VIX", "XIV"), values=values, mask=mask)
    histories = Histories.of(with_index)
    z = np.log(with_index.channel("close"))
    _, made = volatility_terms(with_index, histories, z - shift(z, 1), two)
    terms = list(made)[TERMS:]
    assert len(terms) == 2 * len(INDEX_TERMS)
    first, second = terms[: len(INDEX_TERMS)], terms[len(INDEX_TERMS) :]
    np.testing.assert_allclose(first[-1], -second[-1], atol=1e-5)  # distances from the mean
    assert np.nanmax(np.abs(first[-1])) > 0.1


def test_peers_depend_on_names_alone():
    names = [f"T{number:03d}" for number in range(300)]
    chosen = peers_among(names)
    assert len(chosen) == 50 and peers_among(names[::-1]) == chosen[::-1]
    assert peers_among(names[:7]) == tuple(names[:7])
    few = peers_among([*names[:100], *names[200:]])
    assert set(few) >= set(chosen) - set(names[100:200])


def test_series_that_ended_teach_but_do_not_show_the_market_now(market):
    mask = market.mask.copy()
    mask[:5, 500:] = False
    values, made = market.values.copy(), []
    for factor in (1.0, 3.0):
        values[:5] = market.values[:5] ** factor
        bare = dataclasses.replace(market, values=values.copy(), mask=mask, peers=None)
        made.append(learn(with_peers(bare)))
        assert made[-1].peers == market.ids[5:]
    assert made[0].weights != made[1].weights


def test_a_selection_keeps_the_peers(market):
    some = market.only(market.ids[:2]).until(market.times[600])
    assert some.peers is not None and some.peers.ids == market.ids
    assert state_of(some.peers).times[-1] == market.times[600]
    np.testing.assert_array_equal(
        state_of(some.peers).levels, [each[:600] for each in state_of(market.peers).levels]
    )
