"""Forecasts of a model over the days after its fit: rows that come, lack or change each morning."""

import io
import shutil

import pandas as pd
import pytest

from tests.conftest import prices, run

ROWS, NAMES = 330, ("AAA", "BBB", "CCC")
TABLE = pd.concat([prices(name, ROWS) for name in NAMES])
DAYS = sorted(TABLE["date"].unique())
LEARNED, LAST = DAYS[299], DAYS[-1]  # the end of the fit, and of the file


class Mornings:
    """A home with a file of prices, and a model that was fitted on its first 300 days."""

    def __init__(self, folder):
        self.path, self.home = folder / "p.csv", folder / "home"

    def __call__(self, command, *options):
        """Run a command with this home."""
        return run(command, *options, "--home", self.home)

    def write(self, table):
        table.to_csv(self.path, index=False)

    def ingest(self, table=None, *options):
        """Ingest the file, with other content if that is given."""
        if table is not None:
            self.write(table)
        return self("ingest", "--source", f"files:{self.path}", *options)

    def forecasts(self, *options) -> pd.DataFrame:
        done = self("predict", *options, "--format", "csv")
        return pd.read_csv(io.StringIO(done.stdout))


@pytest.fixture(scope="module")
def first(tmp_path_factory, settings):
    mornings = Mornings(tmp_path_factory.mktemp("first"))
    mornings.write(TABLE)
    fitted = mornings(
        "fit", "--source", f"files:{mornings.path}", "--end", LEARNED, "--config", settings,
        "--start-from", "pooled",
    )  # fmt: skip
    assert fitted.exit_code == 0, fitted.output
    return mornings


@pytest.fixture
def mornings(first):
    """The home after the fit, as it was, under the same path."""
    kept = first.path.parent.with_name("kept")
    shutil.copytree(first.path.parent, kept)
    yield first
    shutil.rmtree(first.path.parent)
    kept.rename(first.path.parent)


def test_a_fit_s_end_is_not_where_later_forecasts_are_made(mornings):
    made = mornings.forecasts("--all")
    assert made["unique_id"].nunique() == 3 and made["ds"].min() > LAST
    assert f"on {LAST}" in mornings("predict", "AAA").stdout


def test_an_end_of_the_forecast_forgets_what_came_after_it(mornings):
    then = mornings.forecasts("--all", "--end", LEARNED)
    assert then["ds"].min() == DAYS[300]
    changed = TABLE.assign(close=TABLE["close"].where(TABLE["date"] <= LEARNED, 70.0))
    assert mornings.ingest(changed).exit_code == 0
    pd.testing.assert_frame_equal(mornings.forecasts("--all", "--end", LEARNED), then)


def test_what_is_forecast_from_the_past_is_not_in_the_record(mornings):
    assert mornings("predict", "--all", "--end", DAYS[310]).exit_code == 0
    assert not list((mornings.home / "record").rglob("*.parquet"))
    assert mornings("predict", "--all").exit_code == 0
    assert len(list((mornings.home / "record").rglob("*.parquet"))) == 1
