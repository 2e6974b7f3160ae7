"""``daily`` does a morning's work in one command, again and again, and says how it ended."""

import contextlib
import json
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pandas as pd
import pytest

from forecaster.daily import EXAMPLE, Limits, Watch, day, last_days, read_watch
from forecaster.errors import UsageError, WriteError
from forecaster.files import FolderLock
from forecaster.pipeline.forecast_outputs import COLUMNS
from tests.cli.desk import BAR, DAYS, NAMES, ROWS, TABLE, WATCH, desk, fitted, renamed
from tests.conftest import prices, run
from tests.messages import refuses

__all__ = ["desk", "fitted"]  # fixtures


def test_a_morning_is_done_once_however_often_it_is_run(desk):
    for end in DAYS[310:313]:
        desk.until(end)
        done = desk.daily()
        assert done.exit_code == 0 and not done.stderr, done.output
    said = desk.daily().stdout
    assert f"3 series forecast after {DAYS[312]}" in said
    bands = desk.summary()["bands"]
    assert len(bands) == 3 and all(f" on {DAYS[311]}, after a " in band for band in bands)
    assert all(band in said.splitlines() for band in bands)
    written = (desk.folder / "f.csv").read_bytes()
    files, record = set(desk.home.recorded()), desk.record()
    assert record["origin"].nunique() == 3 and not record["made_after"].any()
    again = desk.daily()
    assert again.exit_code == 0 and "0 with new rows" in again.stdout
    assert (desk.folder / "f.csv").read_bytes() == written
    assert set(desk.home.recorded()) == files
    pd.testing.assert_frame_equal(desk.record(), record)
    assert {"f.html", "s.html"} <= {path.name for path in desk.folder.iterdir()}
    summary = desk.summary()
    assert summary["state"] == "ok" and summary["forecast"] == 3
    assert summary["session"] == DAYS[312]
    assert summary["scores"]["all"]["outcomes"] == 9 and summary["scores"]["month"]["crps"] > 0


def test_quiet_is_silent_when_all_is_well_and_only_then(desk):
    desk.until(DAYS[310])
    done = desk.daily("--quiet")
    assert done.exit_code == 0 and not done.stdout and not done.stderr
    done = desk.daily("--quiet", "--json", "-")
    said = json.loads(done.stdout)
    assert said["state"] == "ok" and said["written"]["forecasts"].endswith("f.csv")
    desk.write(TABLE[(TABLE["ticker"] != "BBB") & (TABLE["date"] <= DAYS[311])])
    done = desk.daily("--quiet", "--json", desk.folder / "other.json")
    assert done.exit_code == 4 and not done.stdout
    assert "changed: BBB: no longer in the source" in done.stderr
    assert json.loads((desk.folder / "other.json").read_text())["exit_code"] == 4


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_damaged_latest_run_is_named_with_one_to_take_instead(desk, name):
    desk.until(DAYS[310])
    (sound,) = desk.home.runs()
    latest = shutil.copytree(sound, desk.home.new_run("lstm", "latest"))
    (latest / name).write_bytes((latest / name).read_bytes()[:-5])
    done = desk.daily("--quiet")
    assert done.exit_code == 1 and not done.stdout and desk.summary()["state"] == "failed"
    advice = f"--run {sound.name} takes another, `forecaster runs remove latest` removes it"
    for said in (done.stderr, run("predict", "--all", "--home", desk.home).stderr):
        assert advice in " ".join(said.split()), said
    assert run("predict", "--all", "--run", sound.name, "--home", desk.home).exit_code == 0
    assert run("runs", "remove", "latest", "--home", desk.home).exit_code == 0
    assert desk.daily("--quiet").exit_code == 0


def test_late_series_are_named_and_an_alarm_beyond_the_limit(desk):
    late = TABLE[(TABLE["ticker"] != "BBB") | (TABLE["date"] <= DAYS[310])]
    desk.until(DAYS[311], late)
    done = desk.daily()
    assert done.exit_code == 3 and f"BBB: 1 step behind, since {DAYS[310]}" in done.stderr
    assert desk.summary()["partly"].keys() == {"BBB"}
    desk.watch.write_text(WATCH.replace("late = false", "late = 0"))
    done = desk.daily()  # all are late by the clock, BBB is behind the others as well
    assert done.exit_code == 4 and desk.alarms() == [("late", "BBB"), ("late", None)]
    assert "2 of 3 series" in done.stderr


def test_a_file_without_the_latest_sessions_is_not_all_well(desk, monkeypatch):
    """All series lack them by the clock: their forecasts begin with days that are over."""
    evening = f"{DAYS[314]} 23:00"
    monkeypatch.setattr(pd.Timestamp, "now", lambda zone=None: pd.Timestamp(evening, tz=zone))
    desk.watch.write_text(WATCH.replace("late = false", "late = 5"))
    desk.until(DAYS[310])
    done = desk.daily()
    assert done.exit_code == 3 and f"ends {DAYS[310]}, 3 steps behind" in done.stderr
    assert set(desk.summary()["partly"]) == set(NAMES) and not desk.alarms()
    desk.watch.write_text(WATCH)  # the clock does not count
    assert desk.daily().exit_code == 0
    desk.until(DAYS[314])
    desk.watch.write_text(WATCH.replace("late = false", "late = 5"))
    assert desk.daily().exit_code == 0


@pytest.mark.parametrize("name", ["BBB", "NEW"])
def test_a_clock_that_is_set_back_loses_no_rows_and_the_next_run_completes(desk, monkeypatch, name):
    """The latest rows seem to be of the future; most of them are stored already."""
    table = TABLE if name == "BBB" else renamed(TABLE)
    desk.until(DAYS[311], table)
    desk.daily()
    if name == "NEW":
        assert run("tickers", "rename", "BBB", "NEW", "--home", desk.home).exit_code == 0
    desk.until(DAYS[312], table)
    with monkeypatch.context() as patch:
        wrong = f"{DAYS[308]} 23:00"
        patch.setattr(pd.Timestamp, "now", lambda zone=None: pd.Timestamp(wrong, tz=zone))
        done = desk.daily()
    assert done.exit_code == 3 and not desk.alarms()
    assert desk.summary()["partly"].keys() == {"AAA", name, "CCC"}
    assert "holds rows in the future" in done.stderr and "lacks" not in done.stderr
    done = desk.daily()  # the same file
    assert done.exit_code == 0, done.output
    assert pd.read_csv(desk.folder / "f.csv")["ds"].min() > DAYS[312]


def test_what_changed_in_the_source_is_an_alarm(desk):
    desk.until(DAYS[310])
    assert desk.daily().exit_code == 0
    cut = TABLE[(TABLE["date"] <= DAYS[311]) & (TABLE["date"] != DAYS[20])]
    new = prices("NEW", 312)
    desk.write(pd.concat([cut[cut["ticker"] == "AAA"], TABLE[TABLE["ticker"] == "CCC"], new]))
    for _ in range(2):  # a second run on the same rows says the same
        assert desk.daily().exit_code == 4
        assert desk.alarms()[:3] == [("shrunk", "AAA"), ("changed", "BBB"), ("changed", "NEW")]
    assert pd.read_csv(desk.folder / "f.csv")["unique_id"].nunique() == 4
    run("tickers", "retire", "BBB", "--home", desk.home)
    desk.write(pd.concat([TABLE[TABLE["ticker"] != "BBB"], prices("NEW", ROWS)]))
    assert desk.daily().exit_code == 0 and not desk.alarms()


def test_jumped_and_frozen_prices_are_alarms(desk):
    table = TABLE[TABLE["date"] <= DAYS[312]].copy()
    still = (table["ticker"] == "BBB") & (table["date"] >= DAYS[308])
    table.loc[still, BAR] = 90.0
    table.loc[(table["ticker"] == "AAA") & (table["date"] >= DAYS[312]), BAR] *= 1.8
    table.loc[(table["ticker"] == "CCC") & (table["date"] >= DAYS[312]), BAR] /= 4
    desk.write(table)
    assert desk.daily().exit_code == 4
    assert set(desk.alarms()) == {("jumped", "AAA"), ("jumped", "CCC"), ("frozen", "BBB")}
    desk.watch.write_text(WATCH + "jumped = false\nfrozen = false\n")
    assert desk.daily().exit_code == 0


def test_a_model_that_is_too_old_is_an_alarm(desk, monkeypatch):
    later = Mock(now=lambda zone: datetime.now(UTC) + timedelta(days=181))
    monkeypatch.setattr(day, "datetime", later)
    assert desk.daily().exit_code == 4 and desk.alarms() == [("model", None)]


def test_the_model_is_one_of_the_watched_source(desk, settings):
    other = desk.folder / "other.csv"
    TABLE.to_csv(other, index=False)
    fitted = run("fit", "--source", f"files:{other}", "--config", settings, "--run", "other",
                 "--home", desk.home)  # fmt: skip
    assert fitted.exit_code == 0
    assert desk.daily().exit_code == 0
    assert desk.summary()["run"] != "other"
    desk.watch.write_text(WATCH.replace("p.csv", "third.csv"))
    shutil.copy(other, desk.folder / "third.csv")
    done = desk.daily()
    assert done.exit_code == 1 and "Failed at predict: no run of files:" in done.stderr


def test_failures_are_told_and_kept(desk):
    desk.until(DAYS[310])
    (desk.folder / "p.csv").rename(desk.folder / "away.csv")
    done = desk.daily()
    assert done.exit_code == 1 and "Failed at check: files:" in done.stderr
    assert desk.summary()["state"] == "failed" and desk.summary()["stage"] == "check"
    (desk.folder / "away.csv").rename(desk.folder / "p.csv")
    shutil.rmtree(desk.home.record, ignore_errors=True)
    desk.home.record.write_text("in the way")
    done = desk.daily()
    assert done.exit_code == 1 and "Failed at predict: not in the record" in done.stderr
    assert "failed" in run("status", "--home", desk.home).stdout
    desk.home.record.unlink()
    assert desk.daily().exit_code == 0
    used = desk.summary()["run"]
    (desk.folder / "p.csv").unlink()  # the run that forecast last is still known
    assert desk.daily().exit_code == 1 and desk.summary()["run"] == used != ""
    assert [one.run for one in last_days(desk.home)] == [used]


@pytest.mark.parametrize("stage", ["_check", "_ingest", "_predict", "_score", "_write"])
def test_an_interrupted_morning_is_finished_by_the_next_run(desk, monkeypatch, stage):
    desk.until(DAYS[310])
    with monkeypatch.context() as patch:
        patch.setattr(day._Day, stage, Mock(side_effect=KeyboardInterrupt))
        assert desk.daily().exit_code == 130
    (last,) = last_days(desk.home)
    assert last.state == "interrupted"
    assert "interrupted" in run("status", "--home", desk.home).stdout
    assert desk.daily().exit_code == 0 and desk.record()["origin"].nunique() == 1
    assert len(desk.home.recorded()) == 1 and last_days(desk.home)[0].state == "ok"


def test_only_one_works_at_a_time(desk):
    desk.home.daily.mkdir()
    lock = FolderLock(desk.home.daily)
    assert lock.try_acquire()
    done = desk.daily("--wait", "0.2")
    lock.release()
    assert done.exit_code == 1 and "another daily run" in done.stderr
    assert not desk.home.recorded() and desk.daily().exit_code == 0


def test_the_example_is_a_watch_with_all_settings(tmp_path):
    (tmp_path / "daily.toml").write_text(EXAMPLE)
    given = read_watch(tmp_path / "daily.toml")
    assert given == Watch(
        "daily", f"files:{tmp_path / 'prices.csv'}", forecasts=str(tmp_path / "forecasts.csv")
    )
    for each in (Watch, Limits):
        for field in set(each.__struct_fields__) - {"name", "alarms"}:
            assert f"{field} = " in EXAMPLE, field
    text = "\n".join(line.removeprefix("# ") if " = " in line else line
                     for line in EXAMPLE.splitlines())  # fmt: skip
    (tmp_path / "all.toml").write_text(text)
    assert read_watch(tmp_path / "all.toml").max_late == 5
    assert run("daily", "--example").stdout == EXAMPLE


WRONG = [
    "",
    'source = "yahoo"\nsorce = "yahoo"',
    'source = "yahoo"\n[alarms]\nlates = 1',
    'source = "yahoo"\n[alarms]\nlate = true',
    'source = "yahoo"\n[alarms]\ncoverage = 2',
    'source = "yahoo"\nalarms = 1',
    "source = 3",
    'source = "yahoo"\nlevels = [80, 120]',
    'source = "yahoo"\npage = "p.pdf"',
    'source = "yahoo"\nsummary = "no/s.json"',
    'source = "yahoo"\npage = "a.html"\nscorecard = "a.html"',
    'source = "yahoo"\ngroups = "g.csv"',
    'source = "yahoo"\nlayout = "fixed"',
    'source = "yahoo"\nforecasts = "sql:sqlite:///d.db#f"\nlayout = "wide"',
    'source = "yahoo"\nforecasts = "sql:sqlite:///d.db#f"\npage = "sql:x"',
    "source = yahoo",
]


@pytest.mark.parametrize("text", WRONG)
def test_settings_that_cannot_be_are_clear_errors(tmp_path, text):
    path = tmp_path / "daily.toml"
    path.write_text(text)
    with refuses(UsageError):
        read_watch(path)


def test_a_summary_that_cannot_be_written_is_a_failure(desk, monkeypatch):
    from forecaster.daily import Summary

    monkeypatch.setattr(Summary, "write", Mock(side_effect=WriteError("disk is full")))
    done = desk.daily()
    assert done.exit_code == 1 and "Failed at summary: disk is full" in done.stderr


def test_named_tickers_alone_are_forecast(desk):
    desk.until(DAYS[309])
    text = desk.watch.read_text()
    desk.watch.write_text(text.replace("[alarms]", 'tickers = "AAA,CCC"\n[alarms]'))
    assert desk.daily().exit_code in (0, 4)
    assert set(pd.read_csv(desk.folder / "f.csv")["unique_id"]) == {"AAA", "CCC"}
    desk.watch.write_text(text.replace("[alarms]", 'tickers = "AAA,NOPE"\n[alarms]'))
    assert desk.daily().exit_code in (3, 4)
    assert set(pd.read_csv(desk.folder / "f.csv")["unique_id"]) == {"AAA"}
    assert "NOPE" in desk.summary()["partly"]


def test_forecasts_may_go_into_a_table_of_a_database(desk, monkeypatch):
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("DESK_KEY", "geheimnis")
    name = "sql:sqlite:///desk.db?key=${DESK_KEY}#forecasts"
    desk.watch.write_text(WATCH.replace('"f.csv"', f'"{name}"'))
    for end in (DAYS[310], DAYS[311], DAYS[311]):
        desk.until(end)
        done = desk.daily()
        assert done.exit_code == 0, done.output
    shown = f"sql:sqlite:///{desk.folder}/desk.db#forecasts"
    assert desk.summary()["written"]["forecasts"] == shown and f"Wrote {shown}" in done.stdout
    assert desk.summary()["forecast"] == 3 and not (desk.folder / "f.csv").exists()
    with contextlib.closing(sqlite3.connect(desk.folder / "desk.db")) as connection:
        frame = pd.read_sql("SELECT * FROM forecasts ORDER BY origin, unique_id, step", connection)
    assert list(frame) == [*COLUMNS] and len(frame) == 18
    record = desk.record().sort_values(["origin", "unique_id", "ds"], ignore_index=True)
    pd.testing.assert_series_equal(frame["median"], record["forecast"], check_names=False)
    written = [path for path in desk.home.folder.rglob("*") if path.is_file()]
    assert not [path for path in written if b"geheimnis" in path.read_bytes()]
