"""The risk of books by a model, in Python and on the command line."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ModelError, UsageError
from tests import common_market
from tests.conftest import error, run
from tests.messages import refuses

MEASURES = ["var", "es", "var_error", "var_alone", "es_alone"]


def of(found, **keys) -> pd.DataFrame:
    """Return the rows with these values, by series."""
    frame = found.frame
    for name, value in {"scenario": "now", "level": 95.0, "horizon": 1, **keys}.items():
        frame = frame[frame[name] == value]
    return frame.set_index("unique_id")


def book(**shares: float) -> pd.DataFrame:
    return pd.DataFrame({"ticker": [*shares], "shares": [*shares.values()]})


def test_one_position_has_the_quantiles_of_its_forecast(model, panel):
    close = panel.channel("close")[panel.ids.index("KO"), -1]
    bounds = fc.predict(model, panel.only(["KO"]), quantiles=[0.05, 0.95])
    both = pd.DataFrame({"ticker": "KO", "shares": [10, -10], "book": ["long", "short"]})
    found = fc.risk(model, panel, both, horizon=[1, 3], n_paths=20_000)
    for step, row in ((1, bounds.iloc[0]), (3, bounds.iloc[2])):
        long, short = (of(found, book=name, horizon=step)["var"] for name in ("long", "short"))
        assert long["KO"] == pytest.approx(10 * (close - row["LSTM-q-0.05"]), rel=0.01)
        assert short["KO"] == pytest.approx(10 * (row["LSTM-q-0.95"] - close), rel=0.01)
        assert long["(all)"] == pytest.approx(long["KO"], rel=1e-12)
    assert found.until == dict(
        zip((1, 3), bounds["ds"].dt.strftime("%Y-%m-%d").iloc[::2], strict=True)
    )
    assert found.base == pytest.approx({"long": 10 * close, "short": 10 * close})


def test_contributions_add_up_cash_is_safe_and_the_seed_decides(model, panel):
    given = book(AAPL=10, MSFT=5, KO=-20, CASH=1000)
    found, again = (fc.risk(model, panel, given, n_paths=1000, seed=3) for _ in range(2))
    pd.testing.assert_frame_equal(found.frame, again.frame)
    assert not found.frame.equals(fc.risk(model, panel, given, n_paths=1000, seed=4).frame)
    parts = found.frame[found.frame["unique_id"] != "(all)"].groupby(
        ["scenario", "horizon", "level"], dropna=False, sort=False
    )
    whole = found.frame[found.frame["unique_id"] == "(all)"]
    for name in ("var", "es", "profit"):
        summed = parts[name].sum(min_count=3).to_numpy()
        np.testing.assert_allclose(summed, whole[name], rtol=1e-9)
    np.testing.assert_allclose(parts["value"].sum() + 1000, whole["value"], rtol=1e-9)
    without = fc.risk(model, panel, given[:3], n_paths=1000, seed=3)
    np.testing.assert_array_equal(of(found)["var"], of(without)["var"])
    assert (whole["es"] > whole["var"])[whole["level"].notna()].all()


def test_weights_and_values_are_shares_of_another_unit(model, panel):
    prices = dict(zip(panel.ids, panel.channel("close")[:, -1], strict=True))
    by_shares = of(fc.risk(model, panel, book(AAPL=2, IBM=-1, CASH=5000)))
    values = [2 * prices["AAPL"], -prices["IBM"], 5000]
    by_value = pd.DataFrame({"ticker": ["AAPL", "IBM", "CASH"], "value": values})
    same = of(fc.risk(model, panel, by_value))
    np.testing.assert_allclose(same[MEASURES], by_shares[MEASURES], rtol=1e-9)
    weighed = of(fc.risk(model, panel, by_value.rename(columns={"value": "weight"})))
    per_cent = by_shares[MEASURES] * 100 / sum(values)
    np.testing.assert_allclose(weighed[MEASURES], per_cent, rtol=1e-9)


def test_positions_that_cannot_be_measured_are_named_and_left_out(model, panel):
    values, mask = panel.values.copy(), panel.mask.copy()
    row = panel.ids.index("XOM")
    values[row, -3:], mask[row, -3:] = np.nan, False
    late = fc.Panel(values, mask, *(getattr(panel, name) for name in (
        "ids", "times", "channels", "target", "frequency")))  # fmt: skip
    month = panel.channel("volume")[panel.ids.index("KO"), -21:].sum()
    found = fc.risk(model, late, book(AAPL=1, XOM=1, NONE=1, KO=month + 1))
    assert [*of(found).index] == ["(all)", "AAPL", "KO"]
    said = {name: reason.split(",")[0] for name, reason in found.problems.items()}
    assert [*said] == ["XOM", "NONE", "KO"]
    assert said["XOM"].startswith("no price of ") and "5 series" in said["NONE"]
    assert "latest 21 sessions" in found.problems["KO"]
    weights = pd.DataFrame({"ticker": ["AAPL", "NONE"], "weight": [3, 1]})
    assert "25.0% of the book" in fc.risk(model, panel, weights).problems["NONE"]


@pytest.mark.parametrize(
    ("given", "options", "kind"),
    [
        (book(NONE=1), {}, ModelError),
        (book(AAPL=1), {"horizon": [1, 4]}, UsageError),
        (book(AAPL=1), {"horizon": 0}, UsageError),
        (book(AAPL=1), {"level": [99.99]}, UsageError),
        (book(AAPL=1), {"moves": {"SPY": -0.05}}, UsageError),
        (book(AAPL=1), {"moves": {"AAPL": -5}}, UsageError),
        (book(AAPL=1), {"moves": {"AAPL": "-5%"}}, UsageError),
        (book(AAPL=1), {"moves": {"MSFT": -0.05, "msft": 0.05}}, UsageError),
        (book(AAPL=1), {"stress": "2008-10-15"}, UsageError),
        (book(AAPL=1), {"stress": pd.Timestamp("2008-10-15")}, UsageError),
        (book(AAPL=1), {"stress": 2008}, UsageError),
        (book(CASH=1), {}, UsageError),
        (book(AAPL=0), {}, UsageError),
        (book(AAPL=1, CASH=-1e6).rename(columns={"shares": "weight"}), {}, UsageError),
    ],
)
def test_what_cannot_be_measured_is_refused(model, panel, given, options, kind):
    with refuses(kind):
        fc.risk(model, panel, given, **options)


def test_books_without_stocks_or_with_unknown_ones_alone_stop_no_other(model, panel):
    rows = [("AAPL", 2, "one"), ("CASH", 50, "safe"), ("NONE", 1, "lost"), ("CASH", 5, "lost")]
    found = fc.risk(model, panel, pd.DataFrame(rows, columns=["ticker", "shares", "book"]))
    assert [*found.base] == ["one", "safe"]
    safe = of(found, book="safe")
    assert [*safe.index] == ["(all)"] and safe["value"].item() == 50
    np.testing.assert_array_equal(safe[MEASURES], 0.0)
    assert [*found.problems] == ["NONE in lost"]


def test_a_past_day_is_any_date_and_a_move_outside_the_book_rests(model, panel):
    day = panel.times[-3]
    given, moves = book(AAPL=10), {"MSFT": -0.05}
    days = [day, pd.Timestamp(day), pd.Timestamp(day).date()]
    found = fc.risk(model, panel, given, moves=moves, stress=days, n_paths=500)
    profits = found.frame[found.frame["move"].notna()].groupby("scenario")["profit"]
    assert profits.first()["MSFT -5 %"] == 0  # without a market no other series moves
    assert profits.first()[str(day)[:10]] != 0
    alone = fc.risk(model, panel, given, stress=day, n_paths=500)
    assert str(day)[:10] in set(alone.frame["scenario"])


def test_after_a_move_the_book_is_measured_from_there(model, panel):
    given = book(AAPL=10, MSFT=5)
    found = fc.risk(model, panel, given, moves={"aapl": -0.08}, n_paths=1000)
    scenario = "AAPL -8 %"
    moved = found.frame[(found.frame["scenario"] == scenario) & found.frame["profit"].notna()]
    moved, now = moved.set_index("unique_id"), of(found)
    assert moved["move"]["AAPL"] == pytest.approx(-0.08)
    np.testing.assert_allclose(moved["profit"][1:], (moved["move"] * now["value"])[1:])
    after = of(found, scenario=scenario)
    assert after["var"]["AAPL"] > 1.2 * now["var"]["AAPL"]  # more volatile, though worth less


@pytest.fixture
def written(tmp_path) -> Path:
    file = tmp_path / "book.csv"
    file.write_text("ticker;shares\nAAPL;10\nko;-20\nCASH;5000\n")
    return file


def digests(home: Path) -> dict[Path, str]:
    """Return the digests of all files but compiled programs."""
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in home.rglob("*")
        if path.is_file() and "cache" not in path.parts
    }


def tables_of(page: Path) -> list[str]:
    """Return the cells of a page that are text."""
    return re.findall(r"<td class='text'>([^<]*)</td>", page.read_text())


def test_the_command_prints_and_writes_and_records_nothing(home, written, tmp_path):
    before, output, page = digests(home), tmp_path / "risk.json", tmp_path / "risk.html"
    done = run("risk", written, "--if", "MSFT=-5%", "--stress", "2024-03-01:2024-03-08",
               "--horizon", "1,3", "--output", output, "--report", page,
               "--home", home)  # fmt: skip
    assert done.exit_code == 0, done.output
    assert {"AAPL", "worst path 1, 1 ahead", "MSFT -5 %"} <= set(tables_of(page))
    assert digests(home) == before
    frame = pd.read_json(output)
    worst = [f"worst path {rank}, 1 ahead" for rank in (1, 2, 3)]
    scenarios = {"now", *worst, "a quiet session", "MSFT -5 %", "2024-03-01:2024-03-08"}
    assert set(frame["scenario"]) == scenarios
    assert "VaR after" in done.stdout and "What if: " in done.stdout
    prices = tmp_path / "prices.csv"
    assert run("export", "--output", prices, "--home", home).exit_code == 0
    close = pd.read_csv(prices).pivot(index="ds", columns="unique_id", values="close")
    span = close.loc["2024-03-01":"2024-03-08"]
    move = span.iloc[-1] / close[: span.index[0]].iloc[-2] - 1
    expected = 10 * close["AAPL"].iloc[-1] * move["AAPL"] - 20 * close["KO"].iloc[-1] * move["KO"]
    its = frame[(frame["scenario"] == "2024-03-01:2024-03-08") & (frame["unique_id"] == "(all)")]
    assert its["profit"].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--limit", "50%"), 0, "Within the limit"),
        (("--limit", "1"), 4, "OVER the limit of 1 "),
        ((), 0, "fit --horizon 21"),
    ],
)
def test_limits_and_horizons_are_said(home, written, options, code, said):
    done = run("risk", written, *options, "--home", home)
    assert done.exit_code == code, done.output
    assert said in done.stdout and "Simulated prices" in done.stderr


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--horizon", "5"), 2),
        (("--horizon", "week"), 2),
        (("--if", "MSFT"), 2),
        (("--if", "MSFT=-100%"), 2),
        (("--if", "MSFT=-5%", "--if", "msft=5%"), 2),
        (("--if", "BRK.B=-5%", "--if", "brk-b=5%"), 2),
        (("--limit", "much"), 2),
        (("--limit", "nan"), 2),
        (("--limit", "-5%"), 2),
        (("--limit", "0"), 2),
        (("--limit", "inf"), 2),
        (("--stress", "1999-01-01"), 2),
        (("--stress", "2024-03"), 2),
        (("--stress", ":2024-03-08"), 2),
        (("--stress", "2024-03-08:"), 2),
        (("--stress", "2024-3-1"), 2),
        (("--stress", "02/10/2014"), 2),
        (("--stress", "2024-03-08:2024-03-01"), 2),
    ],
)
def test_options_that_mean_nothing_are_refused(home, written, options, code):
    assert error("risk", written, *options, "--home", home, code=code).count("Error: ") == 1


def test_a_book_goes_on_without_what_is_unknown(home, written):
    written.write_text("ticker,weight\nAAPL,1\nNONE,1\n")
    assert "NONE: not among the 5 series of the model" in error(
        "risk", written, "--home", home, code=3
    )
    assert "twice" in error_of(home, written, "ticker,shares\nKO,1\nko,2\n")
    assert "line 3" in error_of(home, written, "ticker,shares\nKO,1\nIBM,\n")
    assert "thousands" in error_of(home, written, "ticker,shares\nKO,1,000\n")
    assert "nothing" in error_of(home, written, "ticker,weight\nKO,1\nIBM,-1\n")


def test_prices_that_end_before_those_of_others_are_said(settings, tmp_path, written):
    frame = common_market.frame(5, 300)
    ends = {"S00": 295, "S01": 290}
    row = frame.groupby("ticker").cumcount()
    frame[row < frame["ticker"].map(ends).fillna(300)].to_csv(tmp_path / "prices.csv", index=False)
    home = tmp_path / "home"
    source = f"files:{tmp_path / 'prices.csv'}"
    done = run("fit", "--source", source, "--config", settings, "--home", home)
    assert done.exit_code == 0, done.output
    written.write_text("ticker,shares\nS00,1\nS01,1\nCASH,5\n")
    for more in ((), ("--if", "S02=-5%")):
        said = error("risk", written, *more, "--home", home, code=3)
        assert "prices: 1 of " in said and "S00 (5 steps behind" in said
        assert "S01: no price of " in said and said.count("S01") == 1 and "stale" not in said
    assert "a move of S01: no price of " in error(
        "risk", written, "--if", "S01=5%", "--home", home, code=2
    )


def error_of(home: Path, written: Path, text: str) -> str:
    written.write_text(text)
    return error("risk", written, "--home", home, code=2)
