"""The examples of every help page run, one after another in a small home, as a reader would.

The network is replaced: Yahoo by a simulated market, addresses of databases and buckets by files
here, and a cluster of machines by this process. What trains is made small.
"""

import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import numpy as np
import pandas as pd
import pytest
import sqlalchemy

from forecaster.cli import main
from forecaster.ingest.sources import yahoo
from forecaster.ingest.sources.simulated import Simulated
from forecaster.swarm.execution.schedule import Schedule
from tests.conftest import error, run

NAMES = ["AAPL", "MSFT", "GE", "FB"]
ROWS, SPLIT = 460, "2025-12-03"
ELSEWHERE = {
    "files:s3://bucket/prices/*.parquet": "files:prices.parquet",
    "s3://bucket/": "bucket-",
    "sql:postgresql://me:${PGPASSWORD}@db.example/desk": "sql:sqlite:///desk.db",
    "sql:postgresql://me:${PGPASSWORD}@db/market": "sql:sqlite:///market.db",
    " --ray auto": "",
    "SPY=-5%": "AAPL=-5%",
}
# What makes an example small, by its begin; the last one that fits.
SMALL = {
    "fit": ["--config", "small.toml"],
    "fit --resume": [],
    "fit --update": [],
    "evaluate": ["--config", "small.toml", "--windows", 4],
    "benchmark": ["--members", 2, "--epochs", 1, "--repeats", 1],
    "adjust AAPL --factor": ["--before", SPLIT],
    "predict --all --max-late 0": ["--max-late", 9999],  # the market ended long ago
    "risk book.csv --horizon": ["--horizon", "1,3"],
}
# What has to be done before, by the begin of an example, where the page says so.
FIT = "fit --tickers AAPL,GE --config small.toml"
WATCHED = [
    "fit --source files:prices.csv --config small.toml",
    "daily --example > daily.toml",
]
BEFORE = {
    "adjust AAPL --undo": ["adjust AAPL"],
    "daily daily.toml": WATCHED,
    "tickers restore GE": ["tickers retire GE"],
    "runs rename 2026": ["runs remove tech-daily"],
}
SHORTEST = "evaluate --tickers sp500.txt --groups sectors.csv"
LONG = ("benchmark", "evaluate --", "--tune", "report dow")  # but for the shortest
ELSEWHERE_TESTED = {"evaluate --resume": "tests/test_sharded_evaluation.py"}


class Market(Simulated):
    """Yahoo with the latest rows of a simulated market; AAPL's split is missing in it."""

    name = "yahoo"

    def __init__(self, **options):
        super().__init__()

    def _prices(self, name: str) -> pd.DataFrame:
        frame = super()._prices(name).tail(ROWS).reset_index(drop=True)
        bar = ["open", "high", "low", "close", "adj_close"]
        if name == "AAPL":
            frame.loc[frame["ds"] < SPLIT, bar] *= 4
        return frame


def pages() -> Iterator[tuple[str, click.Command]]:
    """Yield every command and its name, those of groups too."""
    for name, command in main.commands.items():
        yield name, command
        for inner, of_group in getattr(command, "commands", {}).items():
            yield f"{name} {inner}", of_group


def examples(command: click.Command) -> list[str]:
    text = (command.help or "").partition("Example")[2]
    return re.findall(r"^ *forecaster (.*)$", text, re.MULTILINE)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, settings) -> Path:
    """A folder with the files that examples name, and a home with runs and an evaluation."""
    folder = tmp_path_factory.mktemp("examples")
    for universe in ("sp500.txt", "dow30.txt"):
        (folder / universe).write_text("AAPL\nMSFT\nGE\n")
    shutil.copy(settings, folder / "small.toml")
    (folder / "sectors.csv").write_text("ticker,group\nAAPL,Tech\nMSFT,Tech\nGE,Other\nFB,Other\n")
    (folder / "portfolios.csv").write_text("ticker,group,weight\nAAPL,mine,10\nGE,mine,5\n")
    (folder / "book.csv").write_text("ticker,shares\nAAPL,10\nGE,-5\nCASH,100\n")
    market = Market()
    table = pd.concat([market._prices(name) for name in NAMES])
    table = table.rename(columns={"unique_id": "ticker", "ds": "date"})
    table.to_parquet(folder / "prices.parquet")
    for name in ("prices.csv", "today.csv"):
        table.to_csv(folder / name, index=False)
    table.to_csv(folder / "kurse.csv", index=False, sep=";", decimal=",")
    engine = sqlalchemy.create_engine(f"sqlite:///{folder / 'market.db'}")
    for name in ("p", "prices"):
        table.to_sql(name, engine, index=False)
    days = pd.date_range("2024-01-01", periods=ROWS)
    noise = np.random.default_rng(0).normal(20, 1, (3, ROWS)) + 5 * np.sin(np.arange(ROWS) / 7)
    sales = pd.DataFrame(noise.T, days, ["north", "south", "west"]).rename_axis("day")
    sales = sales.reset_index().melt("day", var_name="store", value_name="net")
    sales.to_csv(folder / "sales.csv", index=False)
    sales.set_axis(["ds", "unique_id", "y"], axis=1).to_parquet(folder / "meters.parquet")
    return folder


@pytest.fixture(scope="module")
def fitted(prepared) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        small(patch, prepared)
        names = ",".join(NAMES)
        done(f"fit --tickers {names} --config small.toml --end 2025-11-20 --run tech-weekly")
        (weekly,) = (prepared / "home" / "models").iterdir()
        for name in ("20261121-231732-595-lstm", "20261121-231732-596.tech-daily"):
            shutil.copytree(weekly, weekly.with_name(name))
        done("evaluate --tickers dow30.txt --config small.toml --windows 4 --output dow")
        latest = prepared / "home" / "evaluations" / "2026-11-21T23-17-32-595"
        shutil.copytree(prepared / "dow", latest)
    return prepared


def small(patch: pytest.MonkeyPatch, folder: Path):
    patch.chdir(folder)
    patch.setenv("FORECASTER_HOME", str(folder / "home"))
    patch.setattr(yahoo, "Yahoo", Market)


def done(line: str, small: Sequence[object] = ()):
    for there, here in ELSEWHERE.items():
        line = line.replace(there, here)
    line, _, into = line.partition(" > ")
    result = run(*shlex.split(line), *small)
    assert result.exit_code in (0, 4), f"{line}\n{result.output}"
    if into:
        Path(into).write_text(result.stdout)


def lines() -> Iterator[Any]:
    """Yield every example once; the long ones for the slow tests."""
    for line in dict.fromkeys(line for _, command in pages() for line in examples(command)):
        long = any(word in line for word in LONG) and line != SHORTEST
        yield pytest.param(line, marks=[pytest.mark.slow] if long else [], id=line)


@pytest.mark.parametrize("line", [*lines()])
def test_an_example(line, fitted, tmp_path, monkeypatch):
    if line in ELSEWHERE_TESTED:
        pytest.skip(f"tested in {ELSEWHERE_TESTED[line]}, with what was interrupted")
    folder = shutil.copytree(fitted, tmp_path / "here")
    small(monkeypatch, folder)
    if line == "fit --resume":
        with monkeypatch.context() as patch:
            patch.setattr(Schedule, "advance", Mock(side_effect=KeyboardInterrupt))
            error(*shlex.split(FIT), code=130)
    for before in of_begin(BEFORE, line):
        done(before)
    for output in re.findall(r"--output ([\w.]+)$", line):
        gone = folder / output
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink(missing_ok=True)
    done(line, of_begin(SMALL, line))


def of_begin(known: dict[str, list[Any]], line: str) -> list[Any]:
    return next((of for begin, of in reversed(known.items()) if line.startswith(begin)), [])


def test_every_page_has_examples():
    assert not [page for page, command in pages() if not examples(command)]
