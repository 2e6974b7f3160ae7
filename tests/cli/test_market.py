"""Tests of ``--market``, from a fit to a forecast."""

import re

import pandas as pd
import pytest

from forecaster.storage import Run
from tests.cli.desk import Desk
from tests.conftest import prices

TABLE = pd.concat([prices(name, 300) for name in ("AAA", "BBB", "CCC", "SPY")])


@pytest.fixture(scope="module")
def desk(tmp_path_factory, settings):
    """A desk with three stocks and an index, of which two stocks are fitted with the index."""
    desk = Desk(tmp_path_factory.mktemp("market"))
    desk.write(TABLE)
    return desk.fit("--config", settings, "--tickers", "AAA,BBB", "--market", "spy")


def test_its_rows_are_loaded_beside_those_of_the_series(desk):
    model = Run.read(desk.home.latest_run())
    assert model.config.market == "SPY" and model.ids == ("AAA", "BBB")
    whole = desk("predict", "--all", "--format", "csv")
    assert whole.exit_code == 0 and whole.stdout.count("AAA") == 3, whole.stderr
    assert "SPY" not in whole.stdout + whole.stderr
    one = desk("predict", "AAA", "--format", "csv", "--plot", desk.folder / "a.png")
    assert one.exit_code == 0 and (desk.folder / "a.png").exists(), one.stderr
    paths = desk("predict", "AAA", "BBB", "--paths", "20")
    assert paths.exit_code == 0 and "20 paths" in paths.stdout
    for command in ("status", "runs"):
        assert "market SPY" in desk(command).stdout


def test_several_indices_are_loaded_beside_the_series(settings, tmp_path):
    """One of them is listed, and so is forecast as well."""
    desk = Desk(tmp_path)
    desk.write(TABLE)
    desk.fit("--config", settings, "--tickers", "AAA,BBB", "--market", "spy, BBB")
    model = Run.read(desk.home.latest_run())
    assert model.config.market == ("SPY", "BBB") and model.ids == ("AAA", "BBB")
    assert "market SPY, BBB" in desk("status").stdout
    for name in ("AAA", "BBB"):
        assert desk("predict", name).exit_code == 0


def test_an_index_that_was_renamed_is_read_under_its_new_name(settings, tmp_path):
    desk = Desk(tmp_path)
    desk.write(TABLE)
    desk.fit("--config", settings, "--tickers", "AAA", "--market", "SPY")
    before = desk("predict", "AAA", "--format", "csv").stdout
    assert desk("tickers", "rename", "SPY", "SPX").exit_code == 0
    renamed = TABLE.replace({"ticker": {"SPY": "SPX"}})
    assert desk.ingest(renamed, "--tickers", "AAA,SPX").exit_code == 0
    after = desk("predict", "AAA", "--format", "csv")
    assert after.exit_code == 0 and after.stdout == before, after.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tickers", "AAA", "--market", "SPX"], "has no series 'SPX'.*There are e.g. SPY"),
        (["--market", "SPX"], "has no series 'SPX'.*There are e.g. SPY"),
        (["--tickers", "AAA", "--market", "SPY,SPX"], "has no series 'SPX'"),
        (["--market", "SPY,SPY"], "different names"),
        (["--market", "SPY", "--transform", "combined"], "transform combined cannot use a market"),
    ],
)
def test_a_market_that_cannot_be_is_one_error(desk, settings, options, said):
    done = desk("fit", "--source", f"files:{desk.path}", "--config", settings, *options)
    assert done.exit_code == 2 and re.search(said, done.stderr), done.output
    assert len(desk.home.runs()) == 1 and not list(desk.home.unfinished.glob("*/"))


def test_rows_that_came_without_those_of_the_index_are_refused(desk):
    """This test is the last of the file, since it changes the home's prices."""
    days = pd.bdate_range(TABLE["date"].max(), periods=7)[1:].strftime("%Y-%m-%d")
    latest = TABLE[TABLE["ticker"] != "SPY"].groupby("ticker").tail(1)
    moves = {name: latest[name] for name in ("open", "high", "low", "close")}
    more = [
        latest.assign(
            date=day, **{name: price * (1 + (k + 1) ** 2 / 1000) for name, price in moves.items()}
        )
        for k, day in enumerate(days)
    ]
    assert desk.ingest(pd.concat([TABLE, *more])).exit_code == 0
    done = desk("predict", "AAA")
    said = f"AAA: its latest row is of {days[-1]}, but the market SPY ends on {TABLE['date'].max()}"
    assert done.exit_code == 1 and said in done.stderr
