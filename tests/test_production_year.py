"""Mornings in production: no event ends with exit code 0 and a wrong or missing forecast."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from forecaster.cli import main
from tests import conftest

SCRIPT = Path(__file__).parents[1] / "scripts" / "production_year.py"


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(SCRIPT.parent))  # of the modules beside it
    return conftest.script(SCRIPT.name)


@pytest.fixture
def run(script):
    """Run a command in this process, which sees the real clock."""

    def run(*words: str):
        done = CliRunner().invoke(main, words, catch_exceptions=False)
        return script.Done(done.exit_code, done.stdout + done.stderr)

    return run


def test_five_days(script, tmp_path, run):
    """Each day has an event, and those of a torn, a cut and a late file are mended the same day."""
    year = script.Year(
        tmp_path, tickers=5, sessions=5, seed=0, rate="false", clock=False, run=run
    )  # fmt: skip
    year.fit()
    days = ("torn", "cut", "late", "split", "listing")
    year.live(dict(enumerate(days)), script.EVENTS)
    assert [row["exit_code"] for row in year.log] == [1, 4, 3, 4, 4]


@pytest.mark.slow
def test_events_that_follow_a_renaming(script, tmp_path, run):
    """A year failed where prices had been adjusted before it, and where a file was cut after it."""
    days = ("split", "", "renaming", "", "cut", "", "half", "late", "renaming", "cut", "frozen")
    year = script.Year(
        tmp_path, tickers=3, sessions=len(days), seed=1, rate="false", clock=False, run=run
    )  # fmt: skip
    year.fit()
    year.live(dict(enumerate(days)), script.EVENTS)
    codes = {name: row["exit_code"] for name, row in zip(days, year.log, strict=True)}
    assert codes == {"split": 4, "": 0, "renaming": 4, "cut": 4, "half": 4, "late": 3,
                     "frozen": 4}  # fmt: skip


@pytest.mark.slow
def test_a_year_is_continued_at_the_session_where_it_stopped(script, tmp_path):
    """The files of the home are those before that session, whatever it did to them."""
    year = script.Year(tmp_path, tickers=3, sessions=3, seed=1, rate="false")
    year.fit()

    def stop(year, session):
        script.succeed(year.command("tickers", "retire", "T00"))
        raise AssertionError("stopped")

    with pytest.raises(AssertionError, match="stopped"):
        year.live({1: "stop"}, {"stop": stop})
    again = script.Year.kept_in(tmp_path)
    assert len(again.log) == 1
    again.live({1: "stale"}, script.EVENTS)
    assert [row["exit_code"] for row in again.log] == [0, 3, 0]


def test_a_year_has_all_events(script):
    events = script.schedule(252, 0)
    assert set(events.values()) == set(script.EVENTS) and len(events) == 126
    assert all(list(events.values()).count(name) == 1 for name in script.ONCE)
    assert events != script.schedule(252, 1)


@pytest.mark.slow
@pytest.mark.timeout(14400)
def test_a_year(script, tmp_path):
    """Nothing grows but the record and the prices, whatever happens."""
    year = script.Year(tmp_path, tickers=40, sessions=252, seed=0)
    year.fit()
    year.live(script.schedule(252, 0), script.EVENTS)
    last = year.log[-1]
    assert last["home_mb"] < 100 and last["cache_files"] < 200 and last["runs"] < 20
