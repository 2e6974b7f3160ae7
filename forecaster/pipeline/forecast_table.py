"""Write forecasts into a table of a database: PostgreSQL, SQLite or DuckDB.

The table has the columns of :mod:`forecaster.pipeline.layout`, and :data:`KEY` as its primary key.
All rows are written in one transaction. A forecast that the table already holds is replaced, with
all of its steps, so a repeated run leaves each forecast once. The time ``made`` changes only if a
number has changed.
"""

import re
import sqlite3
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from forecaster.errors import ForecasterError, UsageError, WriteError, listed
from forecaster.files import DATABASE
from forecaster.ingest import read_database_url
from forecaster.pipeline.layout import COLUMNS

if TYPE_CHECKING:
    import sqlalchemy as sa

KEY = ("run", "origin", "unique_id", "step")
"""The columns that identify a forecast. ``ds`` does not, as a new holiday moves it."""
_CHUNK = 10_000  # number of rows that are in memory as Python objects at once
_WAIT = 10.0  # seconds for which a file may be locked by another program
_LOCK_WAIT = 60.0  # seconds for which another writer may hold a table of a server
_LONGEST = 63  # most bytes of a name; PostgreSQL cuts longer names
_TIMES, _TEXTS = ("made", "origin", "ds"), ("run", "model", "unique_id", "forecast_by", "flags")
_KINDS = {
    "time": r"^(?!.*with time zone)(timestamp|date)", "integer": "int",
    "number": "doub|real|float|num|dec", "text": "char|text|string|clob",
}  # fmt: skip
_SAID = {"time": "timestamp without time zone", "integer": "a whole number",
         "number": "double precision", "text": "text"}  # fmt: skip
_EXPECTED = "expected sql:URL#TABLE, such as sql:postgresql://USER:${PGPASSWORD}@HOST/DB#forecasts"


class ForecastTable:
    """A table of forecasts in a database.

    - ``name``: ``sql:URL#TABLE``, or ``sql:URL#SCHEMA.TABLE``, with a URL as SQLAlchemy takes it;
      ``${NAME}`` in it is taken from the environment
    - ``option``: the option that gave the name, for messages

    ``shown`` names it without user, password and options. Raises UsageError for a name that is not
    understood, and if a library is missing. The database is not asked.
    """

    def __init__(self, name: str, option: str = "--output"):
        url, mark, table = name[len(DATABASE) :].rpartition("#")
        # A table with @ is the end of a URL whose password holds #; no message may show it.
        if not mark or not table or ("@" in table and url.startswith("postgres")):
            raise UsageError(f"{option} sql:URL: the name of the table is missing; {_EXPECTED}")
        *schema, self._table = table.split(".")
        if len(schema) > 1 or not all(0 < len(x.encode()) <= _LONGEST for x in table.split(".")):
            raise UsageError(
                f"{option} sql:URL: {table!r} is no name of a table; {_EXPECTED}, of {_LONGEST} "
                "bytes at most"
            )
        if schema and schema[0].lower() in ("temp", "pg_temp"):
            raise UsageError(
                f"{option} sql:URL: tables of schema {schema[0]!r} are dropped when the connection "
                "is closed; name another schema, or none"
            )
        self._schema = schema[0] if schema else None
        self._option = option
        self._url = read_database_url(url, f"{option} sql:URL", create=True)
        self._engine = self._url.open(_WAIT, writable=True)
        self._kind = self._engine.dialect.name
        self.shown = f"{DATABASE}{self._url.shown}#{table}"

    def check(self) -> None:
        """Check that forecasts can be written, by a transaction that is rolled back.

        Raises UsageError for a table of other columns, and WriteError where the database cannot be
        reached, or refuses. A file that does not exist yet is not created.
        """
        if self._url.file is None or self._url.file.exists():
            self._transact(None)

    def write(self, forecasts: pd.DataFrame) -> None:
        """Write forecasts, all or none; make the table if it is missing.

        ``forecasts``: a frame of :func:`forecaster.pipeline.fixed_columns`

        Raises UsageError for a table of other columns, and WriteError where the database cannot be
        reached or refuses. The table is then as it was.
        """
        made = self._url.file is not None and not self._url.file.exists()
        try:
            self._transact(forecasts)
        except BaseException:
            if made and self._url.file is not None and not _has_content(self._url.file):
                self._url.file.unlink(missing_ok=True)
            raise

    def _transact(self, forecasts: pd.DataFrame | None) -> None:
        """Write forecasts and commit; with None, write no row and roll back."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self._connected() as connection:
                self._begin(connection)
                present = self._present(connection)
                times = None if forecasts is None else _is_dates(forecasts)
                if present:
                    self._check_columns(present, dates=times)
                table = self._defined(dates=_dated(present) if times is None else times)
                if not present:
                    self._create(connection, table)
                for part in _parts(forecasts):
                    self._upsert(connection, table, part)
                if forecasts is None:
                    connection.rollback()
                else:
                    _remove_later_steps(connection, table, forecasts)
                    connection.commit()
        except ForecasterError:
            raise
        except (SQLAlchemyError, OSError, ValueError, RuntimeError, sqlite3.Error) as error:
            # Without "from error", as drivers put passwords into their messages.
            raise self._failed(error) from None

    def _connected(self) -> "sa.Connection":
        """Connect; wait while another program has a file of DuckDB open."""
        until = time.monotonic() + _WAIT
        while True:
            try:
                return self._engine.connect()
            except Exception as error:
                if not _is_locked(str(error)) or time.monotonic() > until:
                    raise
            time.sleep(0.1)

    def _begin(self, connection: "sa.Connection") -> None:
        """Begin the transaction; keep other writers out, so that they wait instead of failing."""
        if self._kind == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif self._kind == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(1000 * _LOCK_WAIT)}")
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('forecaster'))")

    def _present(self, connection: "sa.Connection") -> dict[str, str]:
        """Return the types of the table's columns by name; empty if there is no table."""
        import sqlalchemy as sa

        if self._kind == "sqlite":
            query = "SELECT name, type FROM pragma_table_info(:name, coalesce(:schema, 'main'))"
        else:
            query = (
                "SELECT column_name, data_type FROM information_schema.columns "
                "WHERE table_name = :name AND table_schema = coalesce(:schema, current_schema())"
            )
        named = {"name": self._table, "schema": self._schema}
        # PostgreSQL cannot infer the type of a parameter whose value is null.
        binds = [sa.bindparam(name, type_=sa.String) for name in named]
        found = connection.execute(sa.text(query).bindparams(*binds), named)
        return {str(name): str(kind).lower() for name, kind in found}

    def _check_columns(self, present: dict[str, str], *, dates: bool | None) -> None:
        """Raise UsageError unless the table has the columns of the layout, of their types."""
        wrong = []
        if missing := [name for name in COLUMNS if name not in present]:
            wrong.append(f"lacks {listed(missing)}")
        if others := [name for name in present if name not in COLUMNS]:
            wrong.append(f"has {listed(others)}")
        dates = _dated(present) if dates is None else dates
        wrong += [
            f"has {present[name]} in column {name}, expected {_SAID[kind]}"
            for name in COLUMNS
            if name in present
            and not re.search(_KINDS[kind := _kind(name, dates=dates)], present[name])
        ]
        if wrong:
            raise UsageError(
                f"{self.shown}: is no table of such forecasts: it {'; '.join(wrong)}. Nothing was "
                "written; name another table, which is made if it does not exist"
            )

    def _defined(self, *, dates: bool) -> "sa.Table":
        """Return the definition of the table, with ``dates`` or else whole numbers as times."""
        import sqlalchemy as sa

        types: dict[str, Any] = {
            "time": sa.DateTime(), "integer": sa.BigInteger(), "number": sa.Double(),
            "text": sa.Text(),
        }  # fmt: skip
        columns = [
            sa.Column(
                name,
                types[kind := _kind(name, dates=dates)],
                nullable=kind == "number",
                autoincrement=False,
            )
            for name in COLUMNS
        ]
        key = sa.PrimaryKeyConstraint(*KEY)
        return sa.Table(self._table, sa.MetaData(), *columns, key, schema=self._schema)

    def _create(self, connection: "sa.Connection", table: "sa.Table") -> None:
        from sqlalchemy.schema import CreateTable

        connection.execute(CreateTable(table, if_not_exists=True))

    def _upsert(
        self, connection: "sa.Connection", table: "sa.Table", part: pd.DataFrame | None
    ) -> None:
        """Insert rows, or replace those of the same key; with None, no row."""
        import sqlalchemy as sa
        from sqlalchemy.dialects import postgresql, sqlite

        insert = (sqlite if self._kind == "sqlite" else postgresql).insert(table)
        new, old = insert.excluded, table.c
        numbers = [name for name in COLUMNS if _kind(name, dates=True) == "number"]
        changed = sa.or_(*(old[name].is_distinct_from(new[name]) for name in ("ds", *numbers)))
        others: dict[str, Any] = {name: new[name] for name in COLUMNS if name not in KEY}
        others["made"] = sa.case((changed, new["made"]), else_=old["made"])
        if part is None:
            none = sa.select(*table.c).where(sa.false())
            insert = insert.from_select(COLUMNS, none)
        elif self._kind == "duckdb":  # its driver takes milliseconds for a row of parameters
            insert = insert.from_select(COLUMNS, _given_to_duckdb(connection, part))
        insert = insert.on_conflict_do_update(index_elements=KEY, set_=others)
        if part is None or self._kind == "duckdb":
            connection.execute(insert)
        else:
            connection.execute(insert, _rows(part))

    def _failed(self, error: BaseException) -> WriteError:
        """Return a WriteError with the database's message in one line, without secrets."""
        reason, advice = self._url.reason(error), ""
        if re.search(r"ON CONFLICT|conflict target", reason):
            advice = f". Its primary key must be ({', '.join(KEY)})"
        elif _is_locked(reason):
            advice = ". Another program is writing to it; run the same again when it has ended"
        return WriteError(f"{self.shown}: {reason}{advice}. The table is as it was")


def _remove_later_steps(
    connection: "sa.Connection", table: "sa.Table", forecasts: pd.DataFrame
) -> None:
    """Remove steps beyond those written, of an earlier run of the same name but longer horizon.

    Where there are none, the right to delete is not needed.
    """
    import sqlalchemy as sa

    name, step = table.c.unique_id, table.c.step
    for _, part in forecasts.groupby(["run", "origin"], observed=True):
        first = _rows(part[:1])[0]
        ours = sa.and_(table.c.run == first["run"], table.c.origin == first["origin"])
        steps = part.groupby(part["unique_id"].astype(str))["step"].max()
        written = {str(its): int(last) for its, last in steps.items()}
        beyond = sa.select(name, sa.func.max(step)).where(ours, step > min(written.values()))
        found = connection.execute(beyond.group_by(name)).all()
        rows = [{"its": its, "last": written[its]} for its, most in found
                if most > written.get(its, most)]  # fmt: skip
        if rows:
            chosen = name == sa.bindparam("its"), step > sa.bindparam("last")
            connection.execute(sa.delete(table).where(ours, *chosen), rows)


def _kind(name: str, *, dates: bool) -> str:
    """Return what a column of the layout holds: a time, a whole number, a number or text."""
    if name == "step" or (name in ("origin", "ds") and not dates):
        return "integer"
    return "time" if name in _TIMES else "text" if name in _TEXTS else "number"


def _is_dates(forecasts: pd.DataFrame) -> bool:
    """Return whether the times of forecasts are dates; else they count steps."""
    return forecasts["ds"].dtype.kind == "M"


def _dated(present: dict[str, str]) -> bool:
    """Return whether the times of a table are dates, by its columns; those of a new table are."""
    return not present or not re.search(_KINDS["integer"], present.get("ds", ""))


def _parts(forecasts: pd.DataFrame | None) -> Iterator[pd.DataFrame | None]:
    """Yield forecasts in parts, or None where there are none."""
    if forecasts is None:
        yield None
        return
    for first in range(0, len(forecasts), _CHUNK):
        yield forecasts.iloc[first : first + _CHUNK]


def _rows(part: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as values of Python, with None for unknown numbers."""
    values = {}
    for name in COLUMNS:
        column = part[name]
        if column.dtype.kind == "M":
            values[name] = column.to_numpy().astype("datetime64[us]").tolist()
        elif column.dtype.kind == "f":
            values[name] = [None if x != x else x for x in column.tolist()]
        elif column.dtype.kind in "iu":
            values[name] = column.tolist()
        else:
            values[name] = [str(value) for value in column]
    return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*values.values(), strict=True)]


def _given_to_duckdb(connection: "sa.Connection", part: pd.DataFrame) -> "sa.Select[Any]":
    """Hand rows to DuckDB as an Arrow table; return the query that selects them."""
    import pyarrow as pa
    import sqlalchemy as sa

    texts = part.assign(**{name: part[name].astype(str) for name in _TEXTS})
    arrow = pa.Table.from_pandas(texts[list(COLUMNS)], preserve_index=False)
    driver: Any = connection.connection.driver_connection
    driver.register("forecaster_rows", arrow)
    return sa.select(*sa.table("forecaster_rows", *map(sa.column, COLUMNS)).c)


def _is_locked(reason: str) -> bool:
    return re.search("locked|lock on file|lock timeout", reason) is not None


def _has_content(file: Any) -> bool:
    return file.exists() and file.stat().st_size > 0
