"""Prices from a database: SQLite always, DuckDB and PostgreSQL where they are installed."""

import contextlib
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.daily import read_watch
from forecaster.errors import DataError, ForecasterError, SourceError, UsageError
from forecaster.ingest import load_panel, open_source
from forecaster.ingest.sources import sql
from forecaster.ingest.sources.sql import read_database_url
from tests.conftest import error, prices, run
from tests.messages import refuses
from tests.postgresql import SECRET, Server, secrets, server
from tests.s3 import holding, said

pytest.importorskip("sqlalchemy")
__all__ = ["secrets", "server"]  # fixtures
BOTH = pd.concat([prices("AAA", 60), prices("BÖ.B", 50)], ignore_index=True)


@pytest.fixture
def database(tmp_path) -> Path:
    """A SQLite file with a table of prices."""
    path = tmp_path / "market.db"
    put(path, BOTH)
    return path


def put(path: Path, table: pd.DataFrame, name: str = "prices") -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        table.to_sql(name, connection, index=False, if_exists="replace")
        connection.commit()


def load(path: Path, query: str = "prices", **options):
    return load_panel(f"sql:sqlite:///{path}", query=query, **options)


@pytest.mark.parametrize(
    "query",
    [
        "prices",
        "SELECT * FROM prices",
        "-- all of them\nwith p as (select * from prices) select * from p;",
        "select * from prices where ticker like '%' and ':a' = ':a' and 5 % 2 = 1",
    ],
)
def test_a_query_gives_what_a_file_with_its_rows_gives(tmp_path, database, query):
    BOTH.to_csv(tmp_path / "p.csv", index=False)
    want, got = load_panel(f"files:{tmp_path / 'p.csv'}"), load(database, query)
    assert got.ids == want.ids == ("AAA", "BÖ.B")
    assert got.channels == want.channels and (got.times == want.times).all()
    np.testing.assert_allclose(got.values, want.values, rtol=1e-15)


@pytest.mark.parametrize(
    ("query", "kind", "what"),
    [
        ("nowhere", SourceError, "no such table: nowhere. --query takes one SELECT"),
        ("SELECT 1; DROP TABLE prices", SourceError, "one statement at a time"),
        ("DROP TABLE prices", SourceError, "--query takes one SELECT"),
        ("WITH x AS (SELECT 1) DELETE FROM prices", SourceError, "readonly database"),
        ("SELECT * FROM prices WHERE 0", DataError, "the query returns no rows"),
        ("SELECT ticker, date, 9e999 AS close FROM prices", DataError, "row 1, column 'close'"),
        ("SELECT date, close FROM prices", DataError, "no column names the series"),
        ("SELECT *, iif(volume > 5000, 'EUR', 'USD') AS currency FROM prices", DataError, "'USD'"),
        (" ", UsageError, "--query is empty"),
        *((f"{before}\nSELCT 1", SourceError, "--query takes one SELECT")
          for before in ("-- prices" + " " * 40, "/* a */" + " " * 40, "(" + "\n" * 40)),
    ],
)  # fmt: skip
@pytest.mark.timeout(60)  # a pattern that tries all ways of skipping spaces takes weeks
def test_bad_queries_and_rows_are_clear_errors(database, query, kind, what):
    before = database.read_bytes()
    message = said(kind, lambda: load(database, query))
    assert what in message and "Traceback" not in message
    assert database.read_bytes() == before


def test_a_locked_file_is_said_to_be_locked(database, monkeypatch):
    monkeypatch.setattr(sql, "_WAIT", 0.05)
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        message = said(SourceError, lambda: load(database))
        assert "database is locked. Another program is writing to it" in message
        other.execute("ROLLBACK")
    assert load(database).ids


def test_the_store_is_of_the_query(tmp_path, database, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = open_source("sql:sqlite:///market.db", query="prices").name
    assert one == f"sql:sqlite:///{database}#prices"
    query = "SELECT *\n  FROM prices"
    other = open_source(f"sql:sqlite:///{database}", query=query).name
    assert other == f"sql:sqlite:///{database}#SELECT * FROM prices"


def test_a_new_order_of_rows_is_no_change(database):
    def fingerprint(query: str) -> str | None:
        return open_source(f"sql:sqlite:///{database}", query=query).fingerprint()

    forth = fingerprint("SELECT * FROM prices ORDER BY date")
    assert forth == fingerprint("SELECT * FROM prices ORDER BY date DESC")
    assert forth != fingerprint("SELECT * FROM prices WHERE date > '2020-01-02'")


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("postgresql://me:ge/h#im@x@h/db", "more than one @"),
        ("postgresql://me:geheim@host:geheim/db", "not understood"),
        ("geheim", "not understood"),
        ("mysql://me:geheim@host/db", "not supported"),
        ("postgresql://me:${NOT_SET_HERE}@host/db", "${NOT_SET_HERE}, which is not set"),
        ("sqlite:////nowhere/x.db", "no such file: /nowhere/x.db"),
        ("sqlite://", "expected a file"),
    ],
)
def test_a_bad_url_is_a_clear_error_without_secrets(url, what):
    message = said(UsageError, lambda: open_source(f"sql:{url}", query="prices"))
    assert what in message and "geheim" not in message and "ge/h" not in message


def test_a_database_to_be_written_needs_its_folder():
    with refuses(UsageError):
        read_database_url("sqlite:////nowhere/x.db", create=True)


def test_options_of_other_sources_are_refused_without_secrets():
    url = "SQL:postgresql://me:geheim@host/db?sslpassword=geheim"
    calls: list[Callable[[], object]] = [
        lambda: open_source(url), lambda: open_source(url, query="x"),
        lambda: open_source(url, append=True), lambda: load_panel(url, decimal=","),
    ]  # fmt: skip
    for call in calls:
        message = said(UsageError, call)
        assert "geheim" not in message and "host" in message
    needs = said(UsageError, lambda: open_source("sql:sqlite:///x.db"))
    assert "needs --query" in needs
    with refuses(UsageError):
        load_panel(BOTH, query="prices")


def test_names_and_values_of_the_environment(monkeypatch):
    monkeypatch.setenv("PW", SECRET)
    monkeypatch.setenv("HOST_HERE", "db.example")
    found = read_database_url("postgresql://me:${PW}@${HOST_HERE}:5433/m?sslpassword=${PW}")
    assert found.url.password == SECRET == found.url.query["sslpassword"]
    assert found.shown == "postgresql://db.example:5433/m"
    assert found.hidden(f"bad {SECRET}") == "bad ***"
    monkeypatch.setenv("ALL", "postgres://me:geheim@h/m?host=/run/pg")
    assert read_database_url("${ALL}").shown == "postgresql://h/m?host=/run/pg"


def test_what_is_missing_is_named_with_what_installs_it(monkeypatch, database):
    def without(name: str) -> str:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            if name == "sqlalchemy":
                patch.setattr("forecaster.errors.exceptions.has", lambda library: library != name)
            url = "postgresql://me@host/db" if name == "psycopg" else f"sqlite:///{database}"
            return said(UsageError, lambda: open_source(f"sql:{url}", query="prices"))

    assert "psycopg[binary]" in without("psycopg")
    assert "forecaster-swarm[sql]" in without("sqlalchemy")


def test_a_watch_may_name_a_database_beside_it(tmp_path):
    path = tmp_path / "daily.toml"
    path.write_text('source = "sql:sqlite:///market.db?x=1"\nquery = "prices"\n')
    watch = read_watch(path)
    assert watch.source == f"sql:sqlite:///{tmp_path}/market.db?x=1" and watch.query == "prices"
    for source in ("sql:sqlite:////a/b.db", "sql:${URL}", "sql:duckdb:///:memory:"):
        path.write_text(f'source = "{source}"\n')
        assert read_watch(path).source == source


def test_commands_keep_no_secret_of_a_database(tmp_path, monkeypatch):
    monkeypatch.setenv("DB_KEY", "geheimnis")
    database, home = tmp_path / "market.db", tmp_path / "home"
    put(database, pd.concat([prices("AAA"), prices("BÖ.B")]))
    url, query = f"sql:sqlite:///{database}?key=${{DB_KEY}}", "SELECT * FROM prices"
    source = ("--source", url, "--query", query, "--home", home)
    outputs = [run("ingest", *source), run("status", "--home", home)]
    assert "Stored 2 series" in outputs[0].output, outputs[0].output
    database.rename(tmp_path / "gone.db")
    text = "".join(each.output for each in outputs) + error("ingest", *source, code=2)
    assert "geheimnis" not in text
    assert not holding("geheimnis", home)


def test_duckdb(tmp_path):
    pytest.importorskip("duckdb_engine", reason="duckdb-engine is not installed")
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    path = tmp_path / "market.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("given", BOTH)
        connection.execute(
            "CREATE TABLE prices AS SELECT ticker, date::DATE AS date, "
            "close::DECIMAL(18, 8) AS close FROM given"
        )
    url = f"sql:duckdb:///{path}"
    got = load_panel(url, query="FROM prices")
    np.testing.assert_allclose(got.values[0, :, 0], BOTH["close"][:60], atol=1e-8)
    message = said(SourceError, lambda: load_panel(url, query="SELECT 1; DROP TABLE prices"))
    assert "yntax" in message
    assert "--query takes" in said(SourceError, lambda: load_panel(url, query="DELETE FROM prices"))
    parquet = tmp_path / "p.parquet"
    BOTH.to_parquet(parquet)
    query = f"SELECT * FROM read_parquet('{parquet}')"
    assert load_panel("sql:duckdb:///:memory:", query=query).ids == got.ids


@pytest.fixture(scope="module")
def kurse(server) -> Server:
    """A server with a table of prices in columns of the database's own types."""
    server.run('CREATE TABLE "Kürse" (symbol text, day date, close numeric, at timestamptz)')
    table = pd.concat([prices("AAA"), prices("BÖ.B")])
    values = ", ".join(
        f"('{row.ticker}', '{row.date}', {row.close:.6f}, '{row.date} 22:00-05')"
        for row in table.itertuples()
    )
    server.run(f'INSERT INTO "Kürse" VALUES {values}')
    return server


@pytest.mark.usefixtures("secrets")
def test_postgresql_gives_the_rows_of_a_query_that_can_only_read(kurse):
    server = kurse
    got = load_panel(server.url, query="Kürse", time_col="day")
    assert got.ids == ("AAA", "BÖ.B") and got.values.shape[1] == 400
    np.testing.assert_allclose(got.values[0, :, 0], prices("AAA")["close"], atol=1e-6)
    query = "SELECT symbol, at, close FROM \"Kürse\" WHERE symbol LIKE 'A%'"
    zoned = load_panel(server.url, query=query)
    assert zoned.times[0] == np.datetime64("2020-01-02T03:00"), "times are those of UTC"

    changes = (
        "DROP TABLE \"Kürse\"",
        "SELECT 1; DROP TABLE \"Kürse\"",
        "SELECT 1) AS a; DROP TABLE \"Kürse\"; SELECT * FROM (SELECT 2",
        "WITH gone AS (DELETE FROM \"Kürse\" RETURNING *) SELECT * FROM gone",
        "SELECT lo_create(0)",
        "SELECT 'infinity'::date AS day",
        "SELECT symbol, day, 'Infinity'::float8 AS close FROM \"Kürse\"",
    )  # fmt: skip
    for change in changes:
        assert SECRET not in said(ForecasterError, lambda q=change: load_panel(server.url, query=q))
    assert load_panel(server.url, query="public.Kürse", time_col="day").ids == got.ids


def test_a_server_that_cannot_be_reached_is_said_without_secrets(tmp_path):
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    url = f"sql:postgresql://me:geheim@/db?host={tmp_path}"
    message = said(SourceError, lambda: load_panel(url, query="prices"))
    assert "connection" in message and "geheim" not in message


@pytest.mark.parametrize(
    "message",
    [
        'connection to server at "db" (10.0.0.1), port 5432 failed: FATAL:  password '
        'authentication failed for user "maria"',
        'FATAL:  role "maria" does not exist',
        "FATAL:  Passwort-Authentifizierung für Benutzer »maria« fehlgeschlagen",
    ],
)
@pytest.mark.parametrize("url", ["postgresql://maria:pw@db/m", "postgresql://db/m"])
def test_a_message_shows_no_user(message, url):
    if "@" not in url and "»" in message:
        pytest.skip("the name is that of the system's user")
    said = read_database_url(url).reason(ValueError(message))
    assert "maria" not in said and "FATAL" in said
