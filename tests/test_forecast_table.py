"""Forecasts in a table of a database: SQLite always, PostgreSQL where it is installed."""

import contextlib
import re
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import ForecasterError, UsageError, WriteError
from forecaster.ingest.sources.sql import read_database_url
from forecaster.pipeline import ForecastTable, forecast_outputs
from forecaster.pipeline.forecast_outputs import COLUMNS, FIXED_QUANTILES, KEY
from tests.postgresql import SECRET, secrets, server
from tests.s3 import said

pytest.importorskip("sqlalchemy")
__all__ = ["secrets", "server"]  # fixtures
ORIGIN = pd.Timestamp("2024-03-28")


def forecasts(names=("AAA", "BÖ.B"), run="20240329-LSTM", made="2024-03-29 07:00:00", shift=0.0):
    """Three steps ahead of each series, in the fixed columns."""
    parts = []
    for name in names:
        part = pd.DataFrame({"step": [1, 2, 3], "ds": ORIGIN + pd.to_timedelta([1, 2, 3], "D")})
        for q in FIXED_QUANTILES:
            column = "median" if q == 0.5 else f"q{round(100 * q):02d}"
            part[column] = 100 / 3 + shift + q + part["step"]
        parts.append(part.assign(unique_id=name))
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(
        run=run, model="LSTM", made=pd.Timestamp(made), origin=ORIGIN, forecast_by="own networks",
        flags="",
    )[list(COLUMNS)]  # fmt: skip


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path) -> str:
    """A database without a table, as ``sql:URL``."""
    if request.param == "postgresql":
        request.getfixturevalue("secrets")
        found = request.getfixturevalue("server")
        found.run("DROP SCHEMA IF EXISTS office CASCADE")
        found.run("DROP TABLE IF EXISTS forecasts, other")
        return found.url
    return f"sql:{request.param}:///{tmp_path}/desk.db"


@pytest.fixture
def table(url) -> ForecastTable:
    return ForecastTable(f"{url}#forecasts")


def execute(url: str, *statements: str) -> None:
    import sqlalchemy as sa

    engine = read_database_url(url.removeprefix("sql:"), create=True).open(5, writable=True)
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
        connection.commit()


def rows(url: str, query: str = "forecasts") -> pd.DataFrame:
    import sqlalchemy as sa

    engine = read_database_url(url.removeprefix("sql:")).open(5)
    with engine.connect() as connection:
        found = connection.execute(sa.text(f"SELECT * FROM {query} ORDER BY unique_id, step"))
        frame = pd.DataFrame(found.fetchall(), columns=list(found.keys()))
    for name in ("made", "origin", "ds"):
        if frame[name].dtype.kind != "i":
            frame[name] = pd.to_datetime(frame[name])
    return frame


def test_the_table_is_made_and_holds_what_was_written(table, url):
    table.check()
    given = forecasts()
    given.loc[0, "q95"] = np.nan
    given.loc[1, "q95"] = np.inf
    table.write_table(given)
    pd.testing.assert_frame_equal(rows(url), given, check_dtype=False)
    assert rows(url)["median"].tolist() == given["median"].tolist(), "every bit"
    assert "me:" not in table.shown and table.shown.endswith("#forecasts")


def test_a_repeated_run_leaves_each_forecast_once(table, url):
    first, again = forecasts(), forecasts(made="2024-03-29 09:00:00")
    again["flags"] = "late"
    table.write_table(first)
    table.write_table(again)
    pd.testing.assert_frame_equal(rows(url), first.assign(flags="late"), check_dtype=False)
    changed = forecasts(["AAA"], made="2024-03-29 10:00:00", shift=0.5)
    changed["ds"] += pd.Timedelta("1D")  # a new holiday
    table.write_table(changed)
    both = pd.concat([changed, first[3:].assign(flags="late")], ignore_index=True)
    pd.testing.assert_frame_equal(rows(url), both, check_dtype=False)
    table.write_table(forecasts(run="20240401-LSTM"))
    assert len(rows(url)) == 12, "another model's forecasts stand beside"


def test_steps_of_a_longer_horizon_do_not_outlive_a_run_of_the_same_name(table, url):
    earlier = forecasts(made="2024-03-28 07:00:00")
    earlier["origin"] -= pd.Timedelta("1D")
    longer, other = forecasts(), forecasts(run="other")
    for frame in (earlier, longer, other):
        table.write_table(frame)
    shorter = forecasts(["AAA"], made="2024-04-02 07:00:00", shift=1.0)[:2]
    table.write_table(shorter)
    expected = pd.concat([earlier, shorter, longer[3:], other])  # AAA has two steps
    expected = expected.sort_values(["run", "origin", "unique_id", "step"], ignore_index=True)
    found = rows(url).sort_values(["run", "origin", "unique_id", "step"], ignore_index=True)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_the_sql_of_the_guide_works(table, url):
    guide = Path(__file__).parents[1] / "docs" / "guide" / "every-morning.md"
    latest, made = re.findall(r"```sql\n(.*?);\n```", guide.read_text(), re.DOTALL)
    execute(url, made)
    table.check()
    table.write_table(forecasts())
    table.write_table(forecasts(run="later", made="2024-03-29 08:00:00"))
    tomorrow = forecasts(["AAA"], run="later", made="2024-03-30 08:00:00")
    tomorrow["origin"] += pd.Timedelta("1D")
    table.write_table(tomorrow)
    found = rows(url, f"({latest.partition('ORDER BY f.')[0]}) AS found")
    assert found["unique_id"].tolist() == ["AAA"] * 3 + ["BÖ.B"] * 3
    assert found["run"].eq("later").all() and found["origin"].nunique() == 2


def test_whole_numbers_may_be_times(table, url):
    given = forecasts().assign(origin=202403, ds=[1, 2, 3] * 2)
    table.write_table(given)
    pd.testing.assert_frame_equal(rows(url), given, check_dtype=False)
    message = said(UsageError, lambda: table.write_table(forecasts()))
    assert "has bigint in column origin, expected timestamp without time zone" in message
    assert len(rows(url)) == 6


def test_a_schema_may_be_named(url):
    schema = "main" if "sqlite" in url else "office"
    if schema == "office":
        execute(url, "CREATE SCHEMA office")
    table = ForecastTable(f"{url}#{schema}.forecasts")
    for _ in range(2):
        table.write_table(forecasts())
    table.check()
    assert len(rows(url, f"{schema}.forecasts")) == 6


@pytest.mark.parametrize(
    ("made", "what"),
    [
        ("(run text, unique_id text, price double precision)", "lacks model, made, origin, ds"),
        ("like it, and: note text", "has note"),
        ("like it, with: q95 text", "has text in column q95, expected double precision"),
        ("like it, without a key", "primary key must be (run, origin, unique_id, step)"),
    ],
)
def test_a_table_of_others_is_an_error_before_anything_is_written(table, url, made, what):
    numbers = dict.fromkeys(COLUMNS[7:-2], "double precision")
    types = dict.fromkeys(COLUMNS, "text") | numbers | {"step": "bigint"}
    types |= dict.fromkeys(("made", "origin", "ds"), "timestamp")
    types |= {"note": "text"} if "note" in made else {"q95": "text"} if "q95" in made else {}
    said_types = ", ".join(f"{name} {kind}" for name, kind in types.items())
    key = "" if "without a key" in made else f", PRIMARY KEY ({', '.join(KEY)})"
    columns = made if made[0] == "(" else f"({said_types}{key})"
    execute(url, f"CREATE TABLE forecasts {columns}")
    for call in (table.check, lambda: table.write_table(forecasts())):
        message = said(ForecasterError, call).replace("varchar", "text")
        assert what in message, message
    assert f"{url.partition(':')[2].partition(':')[0]}:" in message and "#forecasts" in message


def test_a_failure_in_the_middle_leaves_the_table_as_it_was(table, url, monkeypatch):
    monkeypatch.setattr(forecast_outputs, "_CHUNK", 3)
    bad = forecasts()
    bad.loc[5, "ds"] = pd.NaT  # in the second part
    said(WriteError, lambda: table.write_table(bad))
    execute(url, "CREATE TABLE other (a int)")  # the database works on
    with pytest.raises(Exception, match="forecasts"):
        rows(url)
    table.write_table(forecasts())
    bad["median"] += 1
    assert "as it was" in said(WriteError, lambda: table.write_table(bad))
    pd.testing.assert_frame_equal(rows(url), forecasts(), check_dtype=False)


def test_writers_at_the_same_time_both_write(url):
    """Also where both find no table."""
    frames = [forecasts(["AAA", "BBB"], made=f"2024-03-29 0{n}:00:00") for n in range(4)]
    frames += [forecasts([f"N{n}"]) for n in range(4)]
    failed: list[Exception] = []

    def write(frame: pd.DataFrame) -> None:
        try:
            ForecastTable(f"{url}#forecasts").write_table(frame)
        except Exception as error:
            failed.append(error)

    for _ in range(3):
        threads = [threading.Thread(target=write, args=(frame,)) for frame in frames]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed and len(rows(url)) == 6 + 12
        execute(url, "DROP TABLE forecasts")


def test_a_table_of_duckdb_is_refused_with_what_to_write_instead(tmp_path):
    with pytest.raises(UsageError, match=r"only read from; write a file .*FILE\.parquet"):
        ForecastTable(f"sql:duckdb:///{tmp_path}/desk.db#forecasts")


def test_a_file_that_stays_locked_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr(forecast_outputs, "_WAIT", 0.05)
    path = tmp_path / "desk.db"
    table = ForecastTable(f"sql:sqlite:///{path}#forecasts")
    table.write_table(forecasts())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        message = said(WriteError, lambda: table.write_table(forecasts(shift=1.0)))
        assert "Another program is writing to it" in message
        other.execute("ROLLBACK")
    pd.testing.assert_frame_equal(rows(f"sql:sqlite:///{path}"), forecasts(), check_dtype=False)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("sqlite:///desk.db", "the name of the table is missing"),
        ("sqlite:///desk.db#", "the name of the table is missing"),
        ("sqlite:///desk.db#a.b.c", "is no name of a table"),
        ("sqlite:///desk.db#temp.forecasts", "dropped when the connection is closed"),
        ("postgresql://me:12#geheim@h/db", "the name of the table is missing"),
        ("postgresql://me:pa#geheim@db.example.com/db", "the name of the table is missing"),
        ("postgresql://me:${NOT_SET_HERE}@host/db#f", "${NOT_SET_HERE}, which is not set"),
    ],
)
def test_a_bad_name_is_a_clear_error_without_secrets(name, what):
    message = said(UsageError, lambda: ForecastTable(f"sql:{name}"))
    assert what in message and "geheim" not in message and message.startswith("--output sql:")


def test_a_server_that_cannot_be_reached_or_refuses_is_said_without_secrets(
    tmp_path, request, monkeypatch
):
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    table = ForecastTable(f"sql:postgresql://me:geheim@/db?host={tmp_path}#forecasts")
    message = said(WriteError, table.check)
    assert "connection" in message and "geheim" not in message
    request.getfixturevalue("secrets")
    found = request.getfixturevalue("server")
    wrong = ForecastTable(f"{found.wrong}#forecasts")
    assert "authentication failed" in said(WriteError, lambda: wrong.write_table(forecasts()))
    reader = ForecastTable(f"{found.url}#nowhere.forecasts")
    assert "nowhere" in said(WriteError, reader.check)


def test_a_user_without_rights_is_told_before_anything_is_made(request):
    request.getfixturevalue("secrets")
    found = request.getfixturevalue("server")
    found.run("DROP TABLE IF EXISTS forecasts")
    found.run("DROP ROLE IF EXISTS reader")
    found.run(f"CREATE ROLE reader LOGIN PASSWORD '{SECRET}'")
    theirs = ForecastTable(f"{found.url.replace('me:', 'reader:')}#forecasts")
    assert "permission denied for schema public" in said(WriteError, theirs.check)
    ForecastTable(f"{found.url}#forecasts").write_table(forecasts())
    found.run("GRANT SELECT ON forecasts TO reader")
    assert "permission denied for table forecasts" in said(WriteError, theirs.check)
    found.run("GRANT SELECT, INSERT, UPDATE ON forecasts TO reader")
    theirs.check()
    theirs.write_table(forecasts(["CCC"]))
    assert len(rows(found.url)) == 9
    message = said(WriteError, lambda: theirs.write_table(forecasts(["CCC"])[:2]))
    assert "permission denied for table forecasts" in message  # nothing is left half-replaced
    assert len(rows(found.url)) == 9
    found.run("DROP TABLE forecasts")
    found.run("DROP ROLE reader")


def test_a_writer_that_keeps_a_server_s_table_locked_is_said(request, monkeypatch):
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    request.getfixturevalue("secrets")
    found = request.getfixturevalue("server")
    monkeypatch.setattr(forecast_outputs, "_LOCK_WAIT", 0.2)
    where = found.url.partition("host=")[2]
    with psycopg.connect(host=where, user="me", password=SECRET, dbname="postgres") as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtext('forecaster'))")
        message = said(WriteError, ForecastTable(f"{found.url}#forecasts").check)
    assert "lock timeout. Another program is writing to it" in message
