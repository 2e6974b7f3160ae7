"""A desk in the morning: a file of prices, a fitted home and the settings of a daily run."""

import io
import json
import shutil
from collections.abc import Iterator
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
        self.watch, self.path = folder / "daily.toml", folder / "p.csv"

    def __call__(self, command, *options):
        """Run a command with this home."""
        return run(command, *options, "--home", self.home)

    def write(self, table: pd.DataFrame):
        table.to_csv(self.path, index=False)

    def fit(self, *options):
        done = self("fit", "--source", f"files:{self.path}", *options)
        assert done.exit_code == 0, done.output
        return self

    def ingest(self, table: pd.DataFrame | None = None, *options):
        """Ingest the file, with other content if that is given."""
        if table is not None:
            self.write(table)
        return self("ingest", "--source", f"files:{self.path}", *options)

    def forecasts(self, *options) -> pd.DataFrame:
        done = self("predict", *options, "--format", "csv")
        return pd.read_csv(io.StringIO(done.stdout))

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

    def borrowed(self) -> "Iterator[Desk]":
        """Yield the desk, and restore it afterwards, under the same path."""
        kept = self.folder.with_name("kept")
        shutil.copytree(self.folder, kept)
        yield self
        shutil.rmtree(self.folder)
        kept.rename(self.folder)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, settings):
    desk = Desk(tmp_path_factory.mktemp("desk"))
    desk.until(DAYS[309])
    desk.watch.write_text(WATCH)
    return desk.fit("--config", settings, "--start-from", "pooled")


@pytest.fixture
def desk(fitted):
    """The desk after the fit, as it was."""
    yield from fitted.borrowed()


def renamed(table: pd.DataFrame, *, since: str | None = None) -> pd.DataFrame:
    """BBB is called NEW in the file, in all rows or in those from a day on."""
    rows = table["ticker"] == "BBB"
    rows &= table["date"] >= (since or "")
    return table.assign(ticker=table["ticker"].where(~rows, "NEW"))
