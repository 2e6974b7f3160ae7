"""Small files of the record are joined to large ones with the same rows."""

import shutil
from datetime import UTC, datetime
from unittest.mock import Mock

import pandas as pd
import pytest

from forecaster.files import Home
from forecaster.record import keeping, read_record
from tests.record.made import forecast, store, table


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "_MANY", 4)
    return Home(tmp_path / "home")


def names(home):
    return [path.name for path in home.recorded()]


def rows(home, source):
    return read_record(home).frames[source]


def test_many_small_files_become_one_with_the_same_rows(home, tmp_path):
    source = store(home, table())
    made = [
        forecast(home, source, until, level="95" if until % 2 else "") for until in (60, 61, 62)
    ]
    before = [pd.read_parquet(path) for path in made]
    kept = [shutil.copy(path, tmp_path) for path in made]
    forecast(home, source, 63, run="20250101-000000-000-lstm")
    assert len(home.recorded()) == 4
    forecast(home, source, 64)
    one, _ = home.recorded()
    assert one.name.endswith("-joined.parquet")
    after = rows(home, source)
    assert len(after) == 5 * len(before[0]) and after["made"].is_monotonic_increasing
    first = after[after["origin"] == before[0]["origin"][0]][before[0].columns]
    pd.testing.assert_frame_equal(
        first.reset_index(drop=True), before[0], check_dtype=False, check_categorical=False
    )
    assert after.loc[after["origin"] == before[1]["origin"][0], "forecast-lo-95"].isna().all()
    for path in kept:  # as if it had been interrupted before they were removed
        shutil.copy(path, home.record)
    pd.testing.assert_frame_equal(rows(home, source), after)
    forecast(home, source, 65)  # joins the three, the one that was left, and the joined ones
    assert len(rows(home, source)) == 6 * len(before[0])
    assert [name.endswith("-joined.parquet") for name in names(home)] == [True, False]


def test_each_month_has_a_file_of_its_own_in_which_later_ones_are_joined(home, monkeypatch):
    source = store(home, table())
    for number, until in enumerate(range(60, 71)):
        now = datetime(2024, 1 + number // 4, 20, tzinfo=UTC)
        monkeypatch.setattr(keeping, "datetime", Mock(now=lambda zone, now=now: now))
        forecast(home, source, until)
    months = [path.name[:6] for path in home.recorded()]
    assert months == ["202401", "202402", "202403", "202403", "202403"]
    assert len(rows(home, source)) == 44
    forecast(home, source, 70)
    assert len(home.recorded()) == 5, "a forecast that is repeated counts once"


def test_sources_and_damaged_files_stay_apart(home, tmp_path):
    source = store(home, table())
    for until, other in ((60, source), (61, "simulated"), (62, source)):
        forecast_of(home, source, until, other)
    (home.record / "20240101-000000-000-damaged.parquet").write_bytes(b"no table")
    forecast_of(home, source, 63, "simulated")
    forecast_of(home, source, 64, "simulated")
    forecast_of(home, source, 65, source)
    record = read_record(home)
    assert set(record.frames) == {source, "simulated"}
    assert len(record.damaged) == 1 and "damaged" in next(iter(record.damaged)).name
    assert record.frames[source]["origin"].nunique() == 3
    assert record.frames["simulated"]["origin"].nunique() == 3
    assert len([name for name in names(home) if "joined" in name]) == 2


def forecast_of(home, source, until, as_source):
    """Record forecasts as if they were of another source."""
    path = forecast(home, source, until)
    if as_source != source:
        frame = pd.read_parquet(path).assign(source=as_source)
        frame.to_parquet(path)


def test_a_file_that_is_joined_while_it_is_read_is_not_lost(home, monkeypatch):
    source = store(home, table())
    for until in (60, 61, 62):
        forecast(home, source, until)
    whole, read = rows(home, source), keeping.read_table

    def late(path):  # before the first is read, another process joins them
        monkeypatch.setattr("forecaster.record.reading.read_table", read)
        monkeypatch.setattr(keeping, "_MANY", 2)
        keeping.join_small(home)
        return read(path)

    monkeypatch.setattr("forecaster.record.reading.read_table", late)
    pd.testing.assert_frame_equal(rows(home, source), whole)
    assert len(home.recorded()) == 2
