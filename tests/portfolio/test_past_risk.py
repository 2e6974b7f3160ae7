"""What was said of books in the past, beside the losses that came."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster import pipeline
from forecaster.errors import UsageError
from forecaster.evaluation import RollingOrigin
from forecaster.pipeline.past_risk import with_losses
from forecaster.record import recorded_books
from forecaster.series import show_time
from tests.cli.desk import DAYS, TABLE, WATCH, desk, fitted
from tests.conftest import run
from tests.messages import refuses

__all__ = ["desk", "fitted"]  # fixtures

BOOK = "ticker,shares,book\nAAA,10,long\nBBB,-5,long\nCCC,-3,short\nCASH,500,safe\n"


def test_losses_are_those_of_positions_held(panel):
    close, day = panel.channel("close"), str(panel.times[-4])[:10]
    rows = [("(all)", np.nan, 1), ("(all)", np.nan, 3), ("(all)", np.nan, 5)]
    rows += [("KO", 200.0, np.nan), ("XOM", -50.0, np.nan)]
    said = pd.DataFrame(rows, columns=["unique_id", "value", "horizon"])
    found = with_losses(said.assign(book="b", origin=day, level=99.0, var=1.0, es=2.0), panel)
    ko, xom = (close[panel.ids.index(name)] for name in ("KO", "XOM"))
    expected = [
        -200 * (ko[-4 + step] / ko[-4] - 1) + 50 * (xom[-4 + step] / xom[-4] - 1) for step in (1, 3)
    ]
    np.testing.assert_allclose(found["loss"], [*expected, np.nan])  # the last is to come


def test_periods_of_several_sessions_do_not_overlap():
    at = np.array([0, 1, 4, 5, 6, 9, 12])
    rows = pd.DataFrame({"book": "b", "level": 95.0, "var": 1.0, "es": 2.0, "loss": 3.0, "at": at})
    rows = pd.concat(
        [rows.assign(horizon=step, origin=at.astype(str), ends=(at + step).astype(str))
         for step in (1, 5)]
    )  # fmt: skip
    table = pipeline.backtests(rows)
    assert table["periods"].tolist() == [7, 3] and table["breaches"].tolist() == [7, 3]
    assert pipeline.backtests(rows.assign(es=0.0)).empty  # of cash


@pytest.mark.parametrize("frequency", ["B", "h"])
def test_losses_come_in_the_sessions_of_the_positions(frequency):
    """Whatever other series there are, which have rows on every day, or between hours."""
    times = pd.date_range("2026-01-02", periods=40, freq=frequency)
    others = pd.date_range(times[0], times[-1], freq={"B": "D", "h": "30min"}[frequency])
    close = np.exp(np.random.default_rng(0).normal(0, 0.01, 40).cumsum())
    panel = fc.load_panel(
        pd.concat(
            [
                pd.DataFrame({"unique_id": "AAA", "ds": times, "close": close}),
                pd.DataFrame({"unique_id": "BTC", "ds": others, "close": 1.0}),
            ]
        )
    )
    rows = [
        {"book": "b", "origin": show_time(time), "unique_id": name, "value": 100.0} | measured
        for time in panel.times[:-1]
        for name, measured in (
            ("AAA", {}), ("(all)", {"horizon": 1, "level": 95.0, "var": 9.0, "es": 9.9}),
        )
    ]  # fmt: skip
    scored = with_losses(pd.DataFrame(rows), panel)
    at_own = scored[scored["origin"].isin([show_time(time) for time in times.to_numpy()])]
    np.testing.assert_allclose(at_own["loss"], -100 * (close[1:] / close[:-1] - 1))
    assert pipeline.backtests(scored)["periods"].tolist() == [39]


def test_each_morning_risk_is_recorded_scored_and_an_alarm_beyond_its_limit(desk):
    (desk.folder / "book.csv").write_text(BOOK)
    desk.watch.write_text(f'book = "book.csv"\n{WATCH}risk = "90%"\n')
    for end in DAYS[310:313]:
        desk.until(end)
        done = desk.daily()
        assert done.exit_code == 0 and "Book short: value at risk" in done.stdout, done.output
    (file,) = (desk.home.record / "books").iterdir()
    before = file.read_bytes()
    assert desk.daily().exit_code == 0 and file.read_bytes() == before
    source = f"files:{desk.path}"
    said = recorded_books(desk.home, source)
    assert said.groupby("book")["origin"].nunique().to_dict() == dict.fromkeys(
        ("long", "safe", "short"), 3
    )
    rows = pipeline.recorded_risk(desk.home, source)
    assert rows["loss"].notna().sum() == 2 * 3 * 2  # origins, levels and books of stocks
    close = TABLE[TABLE["ticker"] == "CCC"].set_index("date")["close"]
    short = rows[(rows["book"] == "short") & (rows["origin"] == DAYS[310])]["loss"]
    np.testing.assert_allclose(short, 3 * (close[DAYS[311]] - close[DAYS[310]]), rtol=1e-6)
    shown = run("scorecard", "--home", desk.home).stdout
    assert "Losses of books" in shown and "green" in shown
    desk.watch.write_text(f'book = "book.csv"\n{WATCH}risk = 1\n')
    assert desk.daily().exit_code == 4
    assert {("risk", "long"), ("risk", "short")} <= set(desk.alarms())
    desk.until(DAYS[311])  # rolled back: its outcome was known
    desk.daily()
    assert len(recorded_books(desk.home, source)) == len(said)


def test_what_a_book_lacks_is_named_and_a_wrong_one_stops_the_morning(desk):
    book = desk.folder / "book.csv"
    desk.watch.write_text(f'book = "book.csv"\n{WATCH}')
    book.write_text("ticker,weight\nAAA,1\nNONE,1\n")
    done = desk.daily()
    assert done.exit_code == 3 and "NONE: not among the 3 series" in done.stderr
    book.write_text("ticker,weight\nAAA,1\naaa,1\n")
    done = desk.daily()
    assert done.exit_code == 1 and "Failed at check" in done.stderr and "twice" in done.stderr


def test_past_cutoffs_say_what_was_known_then(panel, config):
    rolling = RollingOrigin.fit(panel, config, 6, 1)
    book = pd.DataFrame({"ticker": ["aapl", "KO", "NONE"], "shares": [10, -5, 1]})
    with pytest.warns(match="NONE"):
        rows = pipeline.past_risk(rolling, pipeline.read_books(book))
    assert rows["origin"].nunique() == 6 and rows["loss"].notna().all()
    time = panel.times[rolling.cutoffs[2]]
    then = fc.risk(rolling.parts[0][0], panel.until(time), book, horizon=1).first("book")
    its = rows[rows["origin"] == str(time)[:10]]
    assert its["var"].iloc[-1] == pytest.approx(then["var"].iloc[0], rel=1e-9)


def test_an_evaluation_of_a_book_shows_and_keeps_its_table(settings, tmp_path):
    TABLE.to_csv(tmp_path / "p.csv", index=False)
    (tmp_path / "book.csv").write_text(BOOK)
    command = (
        "evaluate", "--source", f"files:{tmp_path / 'p.csv'}", "--config", settings,
        "--windows", 8, "--baselines", "naive", "--book", tmp_path / "book.csv",
        "--output", tmp_path / "out", "--home", tmp_path,
    )  # fmt: skip
    done = run(*command)
    assert done.exit_code == 0 and "Losses of books" in done.stdout, done.output
    table = pd.read_csv(tmp_path / "out" / "risk.csv")
    assert set(table["book"]) == {"long", "short"} and (table["periods"] == 8).all()
    assert "Losses of books" in run("report", tmp_path / "out", "--home", tmp_path).stdout
    assert run(*command, "--overwrite").exit_code == 0


@pytest.mark.parametrize("text", ["much", "0", "-5%", "inf", "nan%"])
def test_limits_that_mean_nothing_are_refused(text):
    with refuses(UsageError):
        pipeline.Limit.parse(text)
