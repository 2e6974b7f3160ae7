"""What networks of prices see beside changes: anniversaries, events and a market."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterWarning, UsageError
from forecaster.series import Panel, behind_market, choose_transform, findings_of, say_findings
from forecaster.series.price_features import MARKET_FEATURES, active_days, event_factors
from tests.frames import long
from tests.messages import refuses, warns

YEARS = pd.bdate_range("2020-01-01", "2022-12-30")
YEARS = YEARS[~YEARS.isin(pd.to_datetime(["2020-12-25", "2021-07-05", "2022-01-17", "2022-07-04"]))]
TIMES = YEARS.to_numpy().astype("datetime64[s]")
LENGTH = len(TIMES)


def active(values: np.ndarray, horizon: int = 5, times: np.ndarray = TIMES) -> list[np.ndarray]:
    values = np.atleast_2d(values)
    return active_days(values, times, np.tile(np.arange(LENGTH), (len(values), 1)), horizon)


def test_a_day_is_seen_again_after_each_of_four_quarters_and_at_no_other_time():
    tomorrow, _ = active(np.where(YEARS.isin(pd.to_datetime(["2021-01-13"])), 1.0, 0.0))
    seen = pd.Series(tomorrow[0], YEARS)["2021-01-13":]  # a year of rows lies before
    again = pd.to_datetime(["2021-04-14", "2021-07-14", "2021-10-13", "2022-01-12"])
    day = pd.offsets.BDay(1)
    assert (seen[again - day] == 1 / 4).all()  # one of the four anniversaries had it
    assert (seen[again - 2 * day] == 1 / 8).all() and (seen[again] == 1 / 8).all()
    assert (seen != 0).sum() == 3 * 4


ROWS, QUARTER, WIDER = 800, 63, 4.0
DAYS = pd.bdate_range("2020-01-01", periods=ROWS + 5)


def marked(count: int) -> np.ndarray:
    """Which days of each ticker are those of its earnings, also of the days to come."""
    out = np.zeros((count, len(DAYS)), bool)
    for row in range(count):
        out[row, 10 + row :: QUARTER] = True
    return out


def with_earnings(count: int, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Prices that move four times as much on days of earnings, and the list of these days."""
    rng = np.random.default_rng(seed)
    events = marked(count)
    moves = 0.01 * rng.standard_t(6, (count, ROWS)) * np.where(events[:, :ROWS], WIDER, 1.0)
    names = [f"T{row}" for row in range(count)]
    closes = 100 * np.exp(moves.cumsum(1))
    prices = long(dict(zip(names, closes, strict=True)), DAYS[:ROWS], "close")
    listed = pd.concat(
        pd.DataFrame({"ticker": name, "date": DAYS[own]})
        for name, own in zip(names, events, strict=True)
    )
    return prices, listed


def test_the_factor_of_a_panel_is_found_and_columns_that_are_no_events_have_none():
    prices, listed = with_earnings(8)
    (factor,) = event_factors(fc.load_panel(prices).with_future(listed))
    assert factor == pytest.approx(WIDER, rel=0.25)
    assert event_factors(fc.load_panel(prices)) == ()
    panel, days = fc.load_panel(with_earnings(4)[0]), np.arange(len(DAYS))
    columns = {"few": days == 9, "often": 1.0, "wide": days % 2, "level": 2.0 * (days % 50 == 0)}
    assert event_factors(panel.with_future(pd.DataFrame({"ds": DAYS, **columns}))) == (1.0,) * 4


def test_the_scale_widens_from_the_event_on_and_is_as_before_after_it():
    prices, listed = with_earnings(6)
    panel = fc.load_panel(prices).with_future(listed)
    known = choose_transform("auto", panel).learned_from(panel, 5)
    scale = known.apply(panel, 5).scale
    plain = known.with_learned(events=()).apply(panel, 5).scale
    (factor,) = known.learned.events
    step = int(np.flatnonzero(marked(6)[0])[8])  # of the first ticker, with all steps known
    over = scale[0] / scale[0, :, :1]
    steps = np.arange(1, 6)
    np.testing.assert_allclose(over[step + 1], np.sqrt(steps))  # no event within the horizon
    # From three days before, the third day is that of the event.
    variance = np.where(steps >= 3, steps - 1 + factor**2, steps)
    np.testing.assert_allclose(over[step - 3], np.sqrt(variance))
    # What moved on that day does not widen what comes after.
    assert (scale / plain)[:, 100:, 0][~marked(6)[:, 101 : ROWS + 1]].mean() < 0.95


@pytest.mark.parametrize("moment", ["2023-01-28", "2023-01-25 16:30"])  # a Saturday, an evening
def test_an_event_to_come_that_is_no_session_is_named(moment):
    prices, listed = with_earnings(4)
    panel = fc.load_panel(prices)
    assert panel.times[-1] == np.datetime64("2023-01-24")
    model = fc.fit(panel.with_future(listed), fc.Config(hidden=2, members=1, epochs=1))
    known = listed[listed["date"] <= panel.times[-1]]
    more = pd.DataFrame({"ticker": ["T0"], "date": [pd.Timestamp(moment)]})
    with warns(ForecasterWarning):
        fc.predict(model, panel.with_future(pd.concat([known, more])))


@pytest.mark.slow
def test_a_kind_that_has_not_happened_yet_changes_no_model():
    prices, listed = with_earnings(4)
    panel, settings = fc.load_panel(prices), fc.Config(hidden=2, members=1, epochs=1, horizon=3)
    known = listed[listed["date"] <= panel.times[-1]].assign(event="earnings")
    rows = {"ticker": ["T0", "T1"], "event": ["split", "alliance"]}
    coming = pd.date_range(panel.times[-1], periods=4)[1:]
    far, near = (
        pd.concat([known, pd.DataFrame({**rows, "date": date})])
        for date in (pd.Timestamp("2030-01-04"), coming[coming.day_of_week < 5][0])
    )
    models = [fc.fit(panel.with_future(frame), settings) for frame in (known, far)]
    assert models[1].transform == models[0].transform
    assert models[1].transform.covariates.future == ("earnings",)
    made = [
        fc.predict(model, panel.with_future(frame)) for model in models for frame in (known, far)
    ]
    for frame in made[1:]:
        pd.testing.assert_frame_equal(frame, made[0], check_exact=True)
    unknown = "the model does not know the events alliance, split, which had not happened"
    with pytest.warns(ForecasterWarning, match=unknown):
        frame = fc.predict(models[0], panel.with_future(near))
    pd.testing.assert_frame_equal(frame, made[0], check_exact=True)


def test_a_list_names_kinds_or_none():
    prices, listed = with_earnings(3)
    panel = fc.load_panel(prices)
    kinds = listed.assign(event=np.where(np.arange(len(listed)) % 2, "earnings", "dividend"))
    future = panel.with_future(pd.concat([kinds, kinds])).future  # listed twice is listed
    assert future is not None and future.columns == ("dividend", "earnings")
    at = future.at("T0", DAYS.to_numpy())
    assert at.sum(0).tolist() == [7, 6] and set(at.ravel()) == {0.0, 1.0}
    alone = panel.with_future(listed[["date"]].drop_duplicates()).future  # of all series
    assert alone is not None and alone.columns == ("event",)
    assert alone.at("T1", DAYS.to_numpy()).sum() == 39


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.assign(event=[None, *["a"] * (len(f) - 1)]),
        lambda f: f.assign(event="ds"),
        lambda f: f.assign(event="a", company="b"),
        lambda f: f.assign(ticker="X"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(change):
    prices, listed = with_earnings(3)
    with refuses(DataError):
        Panel.from_frame(prices).with_future(change(listed))


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f[f["ticker"] != "T1"],
        lambda f: f.assign(date=f["date"] + pd.Timedelta(days=3)),
        lambda f: f[f["date"] < "2022-01-01"],
    ],
)
def test_a_list_that_seems_wrong_is_questioned(change):
    prices, listed = with_earnings(3)
    with warns(ForecasterWarning):
        panel = Panel.from_frame(prices).with_future(change(listed))
        say_findings(findings_of(panel), 3)


QUARTER_YEAR = pd.bdate_range("2024-01-01", periods=80)
LACKS = 50  # a day without a row of the index
BEGINS = 5  # the day of the first row of the index


def table(seed: int = 0) -> pd.DataFrame:
    """Return prices of two stocks, the second with a later start, and of an index."""
    random = np.random.default_rng(seed)
    parts = []
    for name in ("AAA", "BBB", "SPY"):
        close = 50 * np.exp(np.cumsum(random.normal(0, 0.02, len(QUARTER_YEAR))))
        parts.append(pd.DataFrame({"unique_id": name, "ds": QUARTER_YEAR, "close": close}))
    parts[1] = parts[1].iloc[7:]
    parts[2] = parts[2].drop(index=[*range(BEGINS), LACKS])
    return pd.concat(parts, ignore_index=True)


def declared(frame: pd.DataFrame) -> Panel:
    return Panel.from_frame(frame).with_market("SPY", forecast=False)


def seen(panel: Panel) -> dict[str, pd.DataFrame]:
    """Return the features of the market, by series and day."""
    made = choose_transform("auto", panel).apply(panel, 3)
    features = made.features[:, :, -MARKET_FEATURES:]
    return {
        name: pd.DataFrame(features[row][at >= 0], index=panel.times[at[at >= 0]])
        for row, (name, at) in enumerate(zip(panel.ids, made.positions, strict=True))
    }


def test_it_is_the_state_of_the_index_at_its_latest_row():
    frame = table()
    index = frame[frame["unique_id"] == "SPY"].set_index("ds")["close"]
    change = index.apply(np.log).diff()
    # Weights of decay^k, normalised: what pandas calls adjusted.
    weekly, monthly, quarterly = (
        np.sqrt((change**2).ewm(alpha=1 - decay).mean() + 1e-8) for decay in (0.8, 0.94, 0.985)
    )
    scale = np.sqrt((monthly**2 + quarterly**2) / 2)
    expected = pd.DataFrame(
        {
            0: (change / scale.shift()).clip(-8, 8),
            1: np.log(change.abs() / scale.shift() + 0.1),
            2: np.log(weekly / monthly),
            3: np.log(monthly / quarterly),
        }
    )
    expected = expected.reindex(QUARTER_YEAR).ffill().fillna(0)
    panel = declared(frame)
    made = choose_transform("auto", panel).apply(panel, 3)
    for row, (name, features) in enumerate(seen(panel).items()):
        own = made.positions[row] >= 0
        np.testing.assert_allclose(features[[0, 1, 2, 3]], expected.loc[features.index], atol=1e-5)
        ratio = np.log(
            scale.reindex(QUARTER_YEAR).ffill().loc[features.index] / made.scale[row, own, 0]
        )
        np.testing.assert_allclose(features[4], ratio.fillna(0), atol=1e-5, err_msg=name)
    assert (seen(panel)["AAA"].iloc[:BEGINS] == 0).all(axis=None)
    same = seen(panel)["AAA"].iloc[[LACKS - 1, LACKS]]
    assert (same[[0, 1, 2, 3]].nunique() == 1).all()


def test_series_that_go_on_after_the_index_are_named_with_both_dates():
    panel = declared(table())
    assert panel.market is not None
    assert behind_market(panel) == {}
    shorter = dataclasses.replace(panel, market=panel.market.until(QUARTER_YEAR[75]))
    said = str(behind_market(shorter)["AAA"])
    assert f"its latest row is of {QUARTER_YEAR[-1]:%Y-%m-%d}, but the market SPY ends on" in said
    assert f"{QUARTER_YEAR[75]:%Y-%m-%d}" in said
    few = dataclasses.replace(panel, market=panel.market.until(QUARTER_YEAR[76]))
    assert behind_market(few) == {}
    assert "SPY has no row yet on 2024-01-03" in str(
        behind_market(panel.until(QUARTER_YEAR[2]))["AAA"]
    )


def test_what_cannot_be_a_market_is_said():
    panel = Panel.from_frame(table())
    wrongs: list[Any] = ["SPX", ["SPY", "SPX"], None, 5, [5]]
    for wrong in wrongs:
        with refuses(UsageError):
            panel.with_market(wrong)
    other = Panel.from_frame(table().rename(columns={"close": "y"})).with_market("SPY")
    with refuses(UsageError):
        choose_transform("auto", other)
    assert choose_transform("log_return", other).market == ("SPY",)
