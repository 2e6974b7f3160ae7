"""A desk where ``daily`` works: a file of prices, a fitted home and the settings of the run."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from forecaster.files import Home
from forecaster.record import read_record
from tests.conftest import prices, run

NAMES, ROWS = ("AAA", "BBB", "CCC"), 330
TABLE = pd.concat([prices(name, ROWS) for name in NAMES])
DAYS = sorted(TABLE["date"].unique())
BAR = ["open", "high", "low", "close"]
WATCH = """
source = "files:p.csv"
forecasts = "f.csv"
page = "f.html"
scorecard = "s.html"
summary = "s.json"
[alarms]
late = false
"""


class Desk:
    """A folder with prices, a home with a model, and the file of a daily run."""

    def __init__(self, folder: Path):
        self.folder, self.home = folder, Home(folder / "home")
        self.watch = folder / "daily.toml"

    def write(self, table: pd.DataFrame):
        table.to_csv(self.folder / "p.csv", index=False)

    def until(self, day: str, table: pd.DataFrame = TABLE):
        self.write(table[table["date"] <= day])

    def daily(self, *options):
        return run("daily", self.watch, "--home", self.home, *options)

    def summary(self) -> dict:
        return json.loads((self.folder / "s.json").read_text())

    def record(self) -> pd.DataFrame:
        (frame,) = read_record(self.home).frames.values()
        return frame

    def alarms(self) -> list[tuple[str, str | None]]:
        return [(alarm["kind"], alarm["series"]) for alarm in self.summary()["alarms"]]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, settings):
    desk = Desk(tmp_path_factory.mktemp("desk"))
    desk.until(DAYS[309])
    source = f"files:{desk.folder / 'p.csv'}"
    done = run("fit", "--source", source, "--config", settings, "--start-from", "pooled",
               "--home", desk.home)  # fmt: skip
    assert done.exit_code == 0, done.output
    desk.watch.write_text(WATCH)
    return desk


@pytest.fixture
def desk(fitted):
    """The desk after the fit, as it was, under the same path."""
    kept = fitted.folder.with_name("kept")
    shutil.copytree(fitted.folder, kept)
    yield fitted
    shutil.rmtree(fitted.folder)
    kept.rename(fitted.folder)


def renamed(table: pd.DataFrame, *, since: str | None = None) -> pd.DataFrame:
    """BBB is called NEW in the file, in all rows or in those from a day on."""
    rows = table["ticker"] == "BBB"
    rows &= table["date"] >= (since or "")
    return table.assign(ticker=table["ticker"].where(~rows, "NEW"))
