"""Tests of ``--market``, from a fit to a forecast."""

import pandas as pd
import pytest

from forecaster.files import Home
from forecaster.storage import Run
from tests.conftest import error, prices, run

HOME = ("AAA", "BBB", "CCC")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, settings):
    """Write three stocks and an index to a file, and fit two of the stocks with the index."""
    folder = tmp_path_factory.mktemp("market")
    table = pd.concat([prices(name, 300) for name in (*HOME, "SPY")])
    table.to_csv(folder / "p.csv", index=False)
    done = run(*fitting(folder, settings), "--tickers", "AAA,BBB", "--market", "spy")
    assert done.exit_code == 0, done.stderr
    assert "Market" in done.stdout and "2 series" in done.stdout
    return folder


def fitting(folder, settings):
    source = f"files:{folder / 'p.csv'}"
    return ("fit", "--source", source, "--config", settings, "--home", folder / "home")


def test_its_rows_are_loaded_beside_those_of_the_series(folder):
    home = ("--home", folder / "home")
    model = Run.read(Home(folder / "home").latest_run())
    assert model.config.market == "SPY" and model.ids == ("AAA", "BBB")
    whole = run("predict", "--all", "--format", "csv", *home)
    assert whole.exit_code == 0 and whole.stdout.count("AAA") == 3, whole.stderr
    assert "SPY" not in whole.stdout + whole.stderr
    one = run("predict", "AAA", "--format", "csv", "--plot", folder / "a.png", *home)
    assert one.exit_code == 0 and (folder / "a.png").exists(), one.stderr
    paths = run("predict", "AAA", "BBB", "--paths", "20", *home)
    assert paths.exit_code == 0 and "20 paths" in paths.stdout
    for command in ("status", "runs"):
        assert "market SPY" in run(command, *home).stdout


def test_several_indices_are_loaded_beside_the_series(folder, settings):
    """One of them is listed, and so is forecast as well."""
    home = folder / "several"
    fit = ("fit", "--source", f"files:{folder / 'p.csv'}", "--config", settings, "--home", home)
    done = run(*fit, "--tickers", "AAA,BBB", "--market", "spy, BBB")
    assert done.exit_code == 0, done.stderr
    model = Run.read(Home(home).latest_run())
    assert model.config.market == ("SPY", "BBB") and model.ids == ("AAA", "BBB")
    assert "market SPY, BBB" in run("status", "--home", home).stdout
    for name in ("AAA", "BBB"):
        assert run("predict", name, "--home", home).exit_code == 0
    said = error(*fit, "--tickers", "AAA", "--market", "SPY,SPX", code=2)
    assert "has no series 'SPX'" in said
    assert "different names" in error(*fit, "--market", "SPY,SPY", code=2)


def test_an_index_that_was_renamed_is_read_under_its_new_name(folder, settings, tmp_path):
    table = pd.read_csv(folder / "p.csv")
    table.to_csv(tmp_path / "p.csv", index=False)
    home = ("--home", tmp_path / "home")
    done = run(*fitting(tmp_path, settings), "--tickers", "AAA", "--market", "SPY")
    assert done.exit_code == 0, done.stderr
    before = run("predict", "AAA", "--format", "csv", *home).stdout
    source = f"files:{tmp_path / 'p.csv'}"
    assert run("tickers", "rename", "SPY", "SPX", *home).exit_code == 0
    table.replace({"ticker": {"SPY": "SPX"}}).to_csv(tmp_path / "p.csv", index=False)
    assert run("ingest", "--source", source, "--tickers", "AAA,SPX", *home).exit_code == 0
    after = run("predict", "AAA", "--format", "csv", *home)
    assert after.exit_code == 0 and after.stdout == before, after.stderr


def test_an_unknown_index_is_one_error_that_says_what_there_is(folder, settings):
    before = list(folder.glob("home/models/*"))
    for tickers in (("--tickers", "AAA"), ()):
        said = error(*fitting(folder, settings), *tickers, "--market", "SPX", code=2)
        assert "has no series 'SPX'" in said and "There are e.g. SPY" in said
    assert list(folder.glob("home/models/*")) == before
    assert not list(folder.glob("home/unfinished/*/"))
    said = error(
        *fitting(folder, settings), "--market", "SPY", "--transform", "combined", code=2
    )  # fmt: skip
    assert "transform combined cannot use a market" in said


def test_rows_that_came_without_those_of_the_index_are_refused(folder):
    """This test is the last of the file, since it changes the home's prices."""
    table = pd.read_csv(folder / "p.csv")
    days = pd.bdate_range(table["date"].max(), periods=7)[1:].strftime("%Y-%m-%d")
    latest = table[table["ticker"] != "SPY"].groupby("ticker").tail(1)
    moves = {name: latest[name] for name in ("open", "high", "low", "close")}
    more = [
        latest.assign(
            date=day, **{name: price * (1 + (k + 1) ** 2 / 1000) for name, price in moves.items()}
        )
        for k, day in enumerate(days)
    ]
    pd.concat([table, *more]).to_csv(folder / "p.csv", index=False)
    home = ("--home", folder / "home")
    assert run("ingest", "--source", f"files:{folder / 'p.csv'}", *home).exit_code == 0
    said = error("predict", "AAA", *home, code=1)
    assert f"AAA: its latest row is of {days[-1]}, but the market SPY ends on" in said
    assert str(table["date"].max()) in said
