"""Nothing after a cutoff changes a forecast made at it: the future is edited in every way.

Each option has its case in test_look_ahead_options.py.
"""

import dataclasses
import functools
import hashlib
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import forecaster as fc
from forecaster.errors import ForecasterWarning
from forecaster.evaluation import LEVELS, BacktestOptions, evaluate_to_folder, rolling_origin
from forecaster.evaluation.backtest import batches_of
from forecaster.evaluation.baselines import Runner
from forecaster.evaluation.evaluation import FORECASTS
from forecaster.files import Home
from forecaster.forecasting import FORECAST_BY, KEYS, Method, Part, fit_part
from forecaster.ingest import open_source
from forecaster.ingest.review.quality import WRONG, find_flags, flags_of
from forecaster.pipeline import DataRequest, evaluate_from_home
from tests.frames import long
from tests.markets import SESSIONS, Fault, Market, made_until, market, plant
from tests.messages import warns
from tests.slow import rest_slow

SERIES, FIRST = 11, 134  # series that are there from the beginning; position of the first cutoff
CONFIG = fc.Config(
    hidden=2, lookback=15, burn_in=5, horizon=2, validation=40, epochs=2, batch_size=8
)
WINDOWS = 12
OPTIONS = BacktestOptions(WINDOWS, 3, ("empirical", "ewma", "seasonal_naive"))
# Rows that look wrong shortly before the first cutoff and after it; what comes later must not
# change what was known of them.
PASTS: list[list[Fault]] = [
    [("spike", 1, 130, 1), ("jump", 2, FIRST, 1), ("copy", 3, 120, 8), ("spike", 4, 141, 1)],
    [("copies", 0, 125, 4), ("spike", 5, FIRST, 1), ("jump", 6, 131, 1), ("still", 7, 133, 1)],
    [("copies", 4, 128, 9), ("equals", 1, 126, 3), ("spike", 2, 133, 1), ("gap", 8, 130, 3)],
]
EDITS = st.tuples(
    st.sampled_from(
        ["scale", "bar of the past", "bar of another", "delete", "plant", "noise", "adjusted"]
    ),
    st.integers(1, SERIES - 1),  # the series; the first keeps its rows, and so the time axis
    st.integers(1, 35),  # sessions after the cutoff
    st.integers(1, 45),  # sessions before, or how many
    st.sampled_from(["spike", "jump", "still", "again", "equals", "copies"]),
)
FUTURES = (
    st.integers(0, len(PASTS) - 1), st.sampled_from([0, 1, 6, 14]), st.lists(EDITS, min_size=1),
    st.integers(0, 2),
)  # fmt: skip


def past(number: int) -> Market:
    """A market with a sound first series, and none of the series that come later."""
    made = market([], SERIES + 2, number)
    made.observed[:, FIRST - 40 :] = True
    made.observed[0] = True
    made.observed[SERIES:] = False
    made.adjusted[SERIES - number :] = True  # none, one, two: the others fall back on the close
    for fault in PASTS[number]:
        plant(made.bars[:SERIES], made.observed[:SERIES], fault)
    return made


def edited(before: Market, cutoff: int, edits: list, new: int) -> Market:
    """Another future after a cutoff, with new series; what came before is the same."""
    after = Market(*(array.copy() for array in before))
    bars, observed, adjusted = (array[:SERIES] for array in after)
    last = len(SESSIONS) - 1
    random = np.random.default_rng(len(edits))
    for kind, row, later, count, fault in edits:
        at = min(cutoff + later, last)
        if kind == "scale":
            bars[row, at:, count % 5] *= 1 + count / 50
        elif kind == "bar of the past":  # with its volume or without
            columns = slice(None) if count % 2 else slice(4)
            bars[row, at, columns] = bars[row, at - count, columns]
        elif kind == "bar of another":
            bars[row:, at, :4] = bars[row:, at - count, :4]
        elif kind == "delete":
            observed[row, at : at + count] = False
        elif kind == "adjusted":  # some closes are, or no longer
            adjusted[row, at : at + count] ^= True
        elif kind == "noise":
            bars[:, at:] *= random.uniform(0.5, 2, (SERIES, last - at + 1, 5))
        else:
            plant(bars, observed, (fault, row, at, count))
    after.observed[SERIES : SERIES + new, cutoff + 1 :] = True
    bars[:, : cutoff + 1] = before.bars[:SERIES, : cutoff + 1]  # faults reach back
    observed[:, : cutoff + 1] = before.observed[:SERIES, : cutoff + 1]
    return after


_PARTS: dict[str, Part] = {}


def fit_once(panel: fc.Panel, config: fc.Config, seed: int = 0, **_: object) -> Part:
    """A fit, or the model of an earlier fit to the same rows, bit for bit."""
    rows = panel.masked()
    there = rows.mask.any(1)
    content = hashlib.sha256(repr((np.array(rows.ids)[there].tolist(), rows.frequency)).encode())
    for array in (rows.values[there], rows.mask[there], rows.times.astype(int)):
        content.update(array.tobytes())
    key = content.hexdigest()
    if key not in _PARTS:
        _PARTS[key] = fit_part(panel, config, seed)
    return _PARTS[key]


def panel_of(made: Market) -> fc.Panel:
    """As `load_panel` makes it of a source."""
    panel = fc.Panel.from_frame(made.frame())
    return panel.with_flags(flags_of(find_flags(panel), WRONG))


def forecasts(made: Market, refit: bool | int) -> pd.DataFrame:
    """All forecasts that `evaluate` writes."""
    panel = panel_of(made)
    options = dataclasses.replace(OPTIONS, refit=refit)
    known = panel.until(SESSIONS[FIRST])
    runner = Runner(options.runner_names, CONFIG, known, LEVELS)
    with mock.patch.object(rolling_origin, "fit_part", fit_once):
        networks = rolling_origin.RollingOrigin.fit(
            panel, CONFIG, WINDOWS, options.step_size, refit=options.refit,
            level=LEVELS, seed=options.seed,
        )  # fmt: skip
        return pd.concat(
            [made for _, made in batches_of(networks, runner, None)], ignore_index=True
        )


@functools.lru_cache
def forecasts_before(number: int, refit: bool | int) -> pd.DataFrame:
    return forecasts(past(number), refit)


def check_equal_up_to(before: pd.DataFrame, after: pd.DataFrame, cutoff: int) -> None:
    """All bits of all forecasts up to a cutoff; targets may be others, or fewer."""
    ours, theirs = made_until(before, cutoff), made_until(after, cutoff)
    assert set(ours.index.get_level_values("unique_id")) >= {"s00"}
    assert set(theirs.index) <= set(ours.index)
    assert {name for name, _, _ in theirs.index} >= {"s00"}
    pd.testing.assert_frame_equal(ours.loc[theirs.index], theirs, check_exact=True)


def check_future(number: int, later: int, edits: list, new: int, refit: bool | int) -> None:
    cutoff = FIRST + later
    before = past(number)
    after = edited(before, cutoff, edits, new)
    check_equal_up_to(forecasts_before(number, refit), forecasts(after, refit), cutoff)


def test_the_pasts_are_flagged_around_the_first_cutoff():
    """Otherwise the tests below would prove little."""
    for number in range(len(PASTS)):
        panel = panel_of(past(number))
        assert panel.flags is not None
        at_first = panel.flagged(SESSIONS[FIRST])
        assert at_first.any() and (at_first != panel.flagged()).any()


@pytest.fixture(scope="module")
def fitted():
    """The pasts have models, whose programs need not be those of users: each is fitted once."""
    for number in range(len(PASTS)):
        forecasts(past(number), refit=False)


@pytest.mark.usefixtures("fitted", "as_for_users")
@pytest.mark.filterwarnings("ignore:.*series skipped")
@settings(max_examples=1, deadline=None)  # hundreds among the slow tests
@given(*FUTURES)
@example(0, 0, [("bar of the past", 1, 21, 25, "spike")], 2)  # the reversed bar comes again
@example(1, 1, [("noise", 1, 1, 1, "spike")], 1)  # what was to be taken back is not
@example(2, 0, [("delete", row, 1, 5, "spike") for row in range(4, SERIES)], 2)  # of the originals
@example(0, 0, [("adjusted", 1, 35, 1, "spike")], 0)  # the only adjusted close of all
@example(1, 6, [("adjusted", row, 9, 45, "spike") for row in (1, 2, SERIES - 1)], 1)
def test_no_future_changes_a_forecast(number, later, edits, new):
    check_future(number, later, edits, new, refit=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*series skipped")
@settings(max_examples=300, deadline=None)
@given(*FUTURES, st.sampled_from([False, False, 4]))
def test_no_future_of_hundreds_changes_a_forecast(number, later, edits, new, refit):
    check_future(number, later, edits, new, refit)


@functools.lru_cache
def model_of(number: int) -> fc.Model:
    return fc.fit(panel_of(past(number)).until(SESSIONS[FIRST]), CONFIG)


def explained(made: Market, number: int, cutoff: int) -> pd.DataFrame:
    panel = panel_of(made)
    return fc.explain(model_of(number), panel, panel.ids[:SERIES], at=SESSIONS[cutoff]).frame


@pytest.mark.parametrize("number", rest_slow(range(len(PASTS))))
@pytest.mark.filterwarnings("ignore:.*series", "ignore:.*state of the market")
@settings(max_examples=8, deadline=None)
@given(*FUTURES[1:])
def test_no_future_changes_what_explains_a_forecast(number, later, edits, new):
    before, cutoff = past(number), FIRST + later
    after = edited(before, cutoff, edits, new)
    frames = explained(before, number, cutoff), explained(after, number, cutoff)
    pd.testing.assert_frame_equal(frames[0], frames[1], check_exact=True)


def evaluated(made: Market, folder, refit: bool | int) -> pd.DataFrame:
    """The forecasts of a whole evaluation, from a file through the store."""
    folder.mkdir()
    made.frame().to_parquet(folder / "prices.parquet")
    data = DataRequest(open_source(f"files:{folder / 'prices.parquet'}"))
    options = dataclasses.replace(OPTIONS, refit=refit)
    evaluation = evaluate_from_home(
        Home(folder / "home"), data, CONFIG, options, folder=folder / "evaluation"
    )
    return pd.read_parquet(evaluation.folder / FORECASTS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*series skipped")
@pytest.mark.parametrize("number", range(len(PASTS)))
@pytest.mark.parametrize("refit", [False, 4])
def test_no_future_changes_what_the_command_writes(tmp_path, number, refit):
    """Networks trained anew each time."""
    before = past(number)
    known = evaluated(before, tmp_path / "before", refit)
    futures = [
        (0, [("bar of the past", row, 3 * row, 3 + row, "spike") for row in range(1, SERIES)], 2),
        (6, [("noise", 1, 1, 1, "spike"), ("delete", 4, 3, 20, "spike")], 1),
        (6, [("adjusted", row, 9, 45, "spike") for row in (1, 2, SERIES - 1)], 1),
    ]
    for later, edits, new in futures:
        after = edited(before, FIRST + later, edits, new)
        written = evaluated(after, tmp_path / f"after {edits[0][0]}", refit)
        check_equal_up_to(known, written, FIRST + later)


@pytest.mark.filterwarnings("ignore:.*series")
@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"market": "T0"}])
def test_later_rows_do_not_decide_whether_short_prices_have_networks(tmp_path, settings):
    """Neither in a notebook nor by the command, in one shard or in several."""
    random, config = np.random.default_rng(5), fc.Config(horizon=2, **settings)
    days = pd.bdate_range("2024-01-02", periods=60)
    closes = 100 * np.exp(random.normal(0, 0.02, (3, len(days))).cumsum(1))
    prices = long({f"T{row}": close for row, close in enumerate(closes)}, days, "close")
    first, last, made = 9, 21, []  # positions of the first cutoff, and of the last of 24 rows
    assert first < last < 24 < config.rows_to_fit < 40
    for rows in (24, 40, 60):
        frame, file = prices[prices["ds"] <= days[rows - 1]], tmp_path / f"{rows}.parquet"
        frame.to_parquet(file)
        options = BacktestOptions((rows - 1 - config.horizon - first) // 4 + 1, 4, ("naive",))
        data, folder = DataRequest(open_source(f"files:{file}")), tmp_path / f"{rows}"
        with warns(ForecasterWarning) as warned:
            panel = fc.load_panel(frame)
            evaluations = [evaluate_to_folder(folder / "notebook", panel, config, options)]
            for shard in (100, 2):
                home = Home(folder / f"home {shard}")
                with mock.patch("forecaster.pipeline.beginning.MOST_PER_SHARD", shard):
                    evaluations.append(evaluate_from_home(home, data, config, options))
        assert sum("enough rows for networks" in str(one.message) for one in warned) == 3
        for evaluation in evaluations:
            frame = pd.read_parquet(evaluation.folder / FORECASTS)
            frame = frame[frame["cutoff"] <= days[last]].sort_values([*KEYS, "cutoff"])
            made.append(frame.reset_index(drop=True))
    assert set(made[0][FORECAST_BY]) == {Method.LAST_VALUE}
    assert made[0]["cutoff"].nunique() == 4 and made[0]["unique_id"].nunique() == 3
    for frame in made[1:]:
        pd.testing.assert_frame_equal(frame, made[0], check_exact=True)


@pytest.mark.slow
def test_a_notebook_and_the_command_forecast_alike(tmp_path):
    """Flags travel with a panel: learned from where they are known, and targets all stay."""
    made = past(0)
    made.frame().to_parquet(tmp_path / "prices.parquet")
    panel = fc.load_panel(f"files:{tmp_path / 'prices.parquet'}")
    frame = fc.cross_validation(panel, CONFIG, 12, 3, level=[80])
    data = DataRequest(open_source(f"files:{tmp_path / 'prices.parquet'}"))
    evaluation = evaluate_from_home(
        Home(tmp_path), data, CONFIG, BacktestOptions(12, 3), folder=tmp_path / "evaluation"
    )
    columns = ["LSTM", "LSTM-lo-80", "LSTM-hi-80", "Naive"]
    written = evaluation.forecasts(columns)
    pd.testing.assert_frame_equal(written[list(KEYS)], frame[list(KEYS)])
    pd.testing.assert_frame_equal(
        written[columns], frame[columns].astype(np.float32), check_exact=True
    )
    spiked = made.frame().set_index(["unique_id", "ds"])["close"].loc["s04", SESSIONS[141]]
    assert (
        frame[(frame["unique_id"] == "s04") & (frame["ds"] == SESSIONS[141])]["y"] == spiked
    ).any()
    scores = fc.evaluate(frame, by_horizon=True, panel=panel).query("model == 'Naive'")
    both = evaluation.scores.query("model == 'Naive'")
    np.testing.assert_allclose(scores["mase"], both["mase"], rtol=1e-6)
    again = evaluate_to_folder(tmp_path / "again", panel, CONFIG, BacktestOptions(12, 3))
    pd.testing.assert_frame_equal(again.forecasts(columns), written, check_exact=True)
