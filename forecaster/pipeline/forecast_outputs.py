"""Write forecasts into a file, an object of a store, or a table of a database.

An object of S3, Google's or Azure's store is written here and then sent by fsspec; the stores show
it whole or not at all.

In a table, and in the layout ``fixed``, forecasts have columns that never change.

The columns are the same for every model, for any bands and for all kinds of series. There is a
median and no mean: the mean of a price whose logarithm has a Student-t distribution is infinite.

The table, of PostgreSQL or SQLite, has these columns, and :data:`KEY` as its primary key.
All rows are written in one transaction. A forecast that the table already holds is replaced, with
all of its steps, so a repeated run leaves each forecast once. The time ``made`` changes only if a
number has changed.
"""

import contextlib
import dataclasses
import re
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forecaster.errors import ForecasterError, UsageError, WriteError, listed
from forecaster.files import (
    DATABASE,
    TABLES,
    Output,
    atomic,
    check_output,
    format_of,
    is_database,
    is_url,
    run_name,
)
from forecaster.forecasting import FORECAST_BY, Method, quantile_column
from forecaster.ingest import WEB, RemoteUrl, read_database_url, read_remote_url

if TYPE_CHECKING:
    import sqlalchemy as sa

    from forecaster.pipeline.predict_run import Prediction


FIXED_QUANTILES = tuple(round(number / 20, 2) for number in range(1, 20))
"""The quantiles of the layout: 0.05, 0.1 ... 0.95; 0.5 is the column ``median``."""
FLAGS = ("simulated", "jumped", "unadjusted", "frozen", "behind", "late", "ended")
"""Words in the column ``flags``, in their order."""
_COLUMN = {q: "median" if q == 0.5 else f"q{round(100 * q):02d}" for q in FIXED_QUANTILES}
COLUMNS = (
    "run", "model", "made", "origin", "unique_id", "ds", "step", "median",
    *(name for name in _COLUMN.values() if name != "median"), "forecast_by", "flags",
)  # fmt: skip
"""The columns, in their order."""


KEY = ("run", "origin", "unique_id", "step")
"""The columns that identify a forecast. ``ds`` does not, as a new holiday moves it."""
_CHUNK = 10_000  # number of rows that are in memory as Python objects at once
_WAIT = 10.0  # seconds for which a file may be locked by another program
_LOCK_WAIT = 60.0  # seconds for which another writer may hold a table of a server
_TEXTS = ("run", "model", "unique_id", "forecast_by", "flags")
_KINDS = {  # kinds of columns, and the names of their types
    "timestamp without time zone": r"^(?!.*with time zone)(timestamp|date)", "bigint": "int",
    "double precision": "doub|real|float|num|dec", "text": "char|text|string|clob",
}  # fmt: skip
_OBJECT = "expected the name of an object, such as s3://BUCKET/FOLDER/forecasts.csv"
_PLACE = (
    "expected the path of a file, or s3://BUCKET/FILE.csv, gs://BUCKET/FILE.csv or "
    "az://CONTAINER/FILE.csv"
)
_NUMBERS = COLUMNS[COLUMNS.index("median") : COLUMNS.index("forecast_by")]
_EXPECTED = "expected sql:URL#TABLE, such as sql:postgresql://USER:${PGPASSWORD}@HOST/DB#forecasts"


def as_written(made: "Prediction", layout: str, now: datetime | None = None) -> pd.DataFrame:
    """Return the table of forecasts in a layout: ``wide``, as they are made, or ``fixed``."""
    if layout == "fixed":
        return fixed_columns(made, now)
    return made.frame.assign(source="simulated") if made.simulated else made.frame


def fixed_columns(made: "Prediction", now: datetime | None = None) -> pd.DataFrame:
    """Return forecasts with :data:`COLUMNS`, a row per series and time.

    - ``run``, ``model``: the name of the run, and of the kind of model
    - ``made``: the time of the forecast in UTC, without a time zone, which some formats lack
    - ``origin``: the time of the series' latest row; ``step``: number of steps from it to ``ds``
    - ``median``, ``q05`` ... ``q95``: quantiles, in the units of the series
    - ``forecast_by``: the basis of the forecast, see :class:`forecaster.forecasting.Method`
    - ``flags``: words of :data:`FLAGS` that hold for the series, separated by commas; "" for none

    ``made``: a prediction with all of :data:`FIXED_QUANTILES`; ``now``: its time, by default now
    """
    frame, model = made.frame, made.model.config.column
    ids = frame["unique_id"].astype(str)
    ends = {name: its[-1] for name, its in made.panel.times_of_rows().items()}
    moment = pd.Timestamp(now or datetime.now(UTC)).tz_convert("UTC").tz_localize(None).floor("s")
    kinds = {name: {"simulated"} if made.simulated else set[str]() for name in ends}
    for one in made.findings:
        kinds.get(one.name, set()).add(one.kind)  # those that are retired have no forecasts
    flags = {name: ",".join(flag for flag in FLAGS if flag in its) for name, its in kinds.items()}
    columns = {
        "run": run_name(made.run),
        "model": model,
        "made": moment,
        "origin": np.array([ends[name] for name in ids]),
        "unique_id": frame["unique_id"],
        "ds": frame["ds"],
        "step": frame.groupby(ids.to_numpy()).cumcount() + 1,
        **{name: frame[quantile_column(model, q)] for q, name in _COLUMN.items()},
        "forecast_by": frame.get(FORECAST_BY, Method.OWN.value),
        "flags": [flags[name] for name in ids],
    }
    return pd.DataFrame(columns, index=frame.index)[list(COLUMNS)]


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
        if len(schema) > 1 or not all(table.split(".")):
            raise UsageError(f"{option} sql:URL: {table!r} is no name of a table; {_EXPECTED}")
        if schema and schema[0].lower() in ("temp", "pg_temp"):
            raise UsageError(
                f"{option} sql:URL: tables of schema {schema[0]!r} are dropped when the connection "
                "is closed; name another schema, or none"
            )
        self._schema = schema[0] if schema else None
        self._option = option
        self._url = read_database_url(url, f"{option} sql:URL", create=True)
        if self._url.url.get_backend_name() == "duckdb":
            raise UsageError(
                f"{option} sql:duckdb: DuckDB is only read from; write a file that it reads "
                f"({option} FILE.parquet), or a table of PostgreSQL or SQLite"
            )
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

    def write_table(self, forecasts: pd.DataFrame) -> None:
        """Write forecasts, all or none; make the table if it is missing.

        ``forecasts``: a frame of :func:`forecaster.pipeline.fixed_columns`

        Raises UsageError for a table of other columns, and WriteError where the database cannot be
        reached or refuses. The table is then as it was.
        """
        self._transact(forecasts)

    def _transact(self, forecasts: pd.DataFrame | None) -> None:
        """Write forecasts and commit; with None, write no row and roll back."""
        from sqlalchemy.exc import SQLAlchemyError
        from sqlalchemy.schema import CreateTable

        try:
            with self._engine.connect() as connection:
                self._begin(connection)
                found = self._found(connection)
                if forecasts is None:
                    dates = not re.search(_KINDS["bigint"], found.get("ds", ""))
                else:  # otherwise they count steps
                    dates = forecasts["ds"].dtype.kind == "M"
                table = _defined(self._table, self._schema, dates=dates)
                if found:
                    self._check_columns(found, table)
                else:
                    connection.execute(CreateTable(table, if_not_exists=True))
                if forecasts is None:
                    _upsert(connection, table, None)
                    return connection.rollback()
                for first in range(0, len(forecasts), _CHUNK):
                    _upsert(connection, table, forecasts.iloc[first : first + _CHUNK])
                _remove_later_steps(connection, table, forecasts)
                connection.commit()
        except (SQLAlchemyError, OSError, ValueError, RuntimeError) as error:
            # Without "from error", as drivers put passwords into their messages.
            raise self._failed(error) from None

    def _begin(self, connection: "sa.Connection") -> None:
        """Begin the transaction; keep other writers out, so that they wait instead of failing."""
        if self._kind == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif self._kind == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(1000 * _LOCK_WAIT)}")
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('forecaster'))")

    def _found(self, connection: "sa.Connection") -> dict[str, str]:
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

    def _check_columns(self, found: dict[str, str], table: "sa.Table") -> None:
        """Raise UsageError unless the table has the columns of the layout, of their types."""
        wrong = []
        if missing := [name for name in COLUMNS if name not in found]:
            wrong.append(f"lacks {listed(missing)}")
        if others := [name for name in found if name not in COLUMNS]:
            wrong.append(f"has {listed(others)}")
        wrong += [
            f"has {found[column.name]} in column {column.name}, expected {kind}"
            for column in table.c
            if column.name in found
            and not re.search(_KINDS[kind := column.info["kind"]], found[column.name])
        ]
        if wrong:
            raise UsageError(
                f"{self.shown}: is no table of such forecasts: it {'; '.join(wrong)}. Nothing was "
                "written; name another table, which is made if it does not exist"
            )

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

    for _, part in forecasts.groupby(["run", "origin"], observed=True):
        first, last = _rows(part[:1])[0], int(part["step"].max())
        ours = table.c.run == first["run"], table.c.origin == first["origin"]
        beyond = sa.and_(*ours, table.c.step > last)
        found = connection.execute(sa.select(table.c.unique_id).where(beyond).distinct()).scalars()
        if names := {*found} & {*part["unique_id"].astype(str)}:
            chosen = table.c.unique_id == sa.bindparam("its")
            rows = [{"its": name} for name in names]
            connection.execute(sa.delete(table).where(beyond, chosen), rows)


def _defined(name: str, schema: str | None, *, dates: bool) -> "sa.Table":
    """Return the definition of the table, with ``dates`` or else whole numbers as times."""
    import sqlalchemy as sa

    def column(name: str) -> "sa.Column[Any]":
        kind = "double precision" if name in _NUMBERS else "text" if name in _TEXTS else "bigint"
        if name == "made" or (name in ("origin", "ds") and dates):
            kind = "timestamp without time zone"
        return sa.Column(name, types[kind], info={"kind": kind}, nullable=name in _NUMBERS,
                         autoincrement=False)  # fmt: skip

    types: dict[str, Any] = dict(
        zip(_KINDS, (sa.DateTime(), sa.BigInteger(), sa.Double(), sa.Text()), strict=True)
    )
    key = sa.PrimaryKeyConstraint(*KEY)
    return sa.Table(name, sa.MetaData(), *map(column, COLUMNS), key, schema=schema)


def _upsert(connection: "sa.Connection", table: "sa.Table", part: pd.DataFrame | None) -> None:
    """Insert rows, or replace those of the same key; with None, no row."""
    import sqlalchemy as sa
    from sqlalchemy.dialects import postgresql, sqlite

    insert = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
    new, old = insert.excluded, table.c
    changed = sa.or_(*(old[name].is_distinct_from(new[name]) for name in ("ds", *_NUMBERS)))
    others: dict[str, Any] = {name: new[name] for name in COLUMNS if name not in KEY}
    others["made"] = sa.case((changed, new["made"]), else_=old["made"])
    rows = None
    if part is None:
        insert = insert.from_select(COLUMNS, sa.select(*table.c).where(sa.false()))
    else:
        rows = _rows(part)
    insert = insert.on_conflict_do_update(index_elements=KEY, set_=others)
    connection.execute(insert, rows)


def _rows(part: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as values of Python, with None for unknown numbers."""
    values = part[list(COLUMNS)].astype(dict.fromkeys(_TEXTS, str)).astype(object)
    rows: Any = values.where(values.notna(), None).to_dict("records")
    return rows


def _is_locked(reason: str) -> bool:
    return re.search("locked|lock timeout", reason) is not None


@dataclasses.dataclass(frozen=True)
class RemoteOutput(Output):
    """An object of a store that may be written, as returned by :func:`check_forecast_output`.

    ``url``: of the object; ``system``: the fsspec file system; ``key``: the object's path in it
    """

    url: RemoteUrl = dataclasses.field(kw_only=True)
    system: Any = dataclasses.field(kw_only=True, repr=False, compare=False)
    key: str = dataclasses.field(kw_only=True)

    @property
    def shown(self) -> str:
        """Its URL."""
        return self.url.shown

    def write(self, write: Callable[[Path], object]) -> None:
        """Write the object by ``write(path)``, whole or not at all. Raises WriteError."""
        with contextlib.ExitStack() as stack:
            with atomic.as_write_error(Path(tempfile.gettempdir())):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="forecaster-"))
                file = Path(folder) / f"output{PurePosixPath(self.key).suffix}"
                write(file)
            with _as_write_error(self.url):
                self.system.put_file(str(file), self.key)


def check_forecast_output(
    name: str,
    *,
    form: str | None = None,
    overwrite: bool = False,
    option: str = "--output",
    formats: bool = False,
) -> Output | ForecastTable:
    """Check that forecasts can be written to a file, an object of a store or a table; return it.

    Call this before the work begins.

    - ``name``: a path, a URL or ``sql:URL#TABLE``; ``${NAME}`` in the latter two is taken from the
      environment
    - ``form``: the format; by default the format of the ending
    - ``overwrite``: whether the file or object may exist
    - ``option``: the command-line option, for error messages
    - ``formats``: whether the command has the option --format, which messages then propose

    Whether a store would take an object shows when it is written.

    Raises UsageError when the file or object exists, the format is unknown or does not match the
    ending, or a library is missing; WriteError when the store or the database cannot be reached, or
    refuses.
    """
    if is_database(name):
        table = ForecastTable(name, option)
        table.check()
        return table
    if not is_url(name):
        return check_output(
            Path(name), form=form, overwrite=overwrite, option=option, formats=formats
        )
    url = read_remote_url(name, option, _PLACE)
    if url.kind in WEB:
        raise UsageError(f"{option} {url.shown}: web servers are only read from; {_OBJECT}")
    try:
        form = format_of(url.url, TABLES, form, option, formats=formats)
    except UsageError as error:
        raise UsageError(url.hidden(str(error))) from None
    if any(sign in url.url for sign in "*["):
        raise UsageError(f"{option} {url.shown}: is a pattern; {_OBJECT}")
    system, path = url.open(f"{option} {url.shown}")
    if "/" not in path.lstrip("/"):
        raise UsageError(f"{option} {url.shown}: names no object in a bucket; {_OBJECT}")
    output = RemoteOutput(Path(path), form, url=url, system=system, key=path)
    if overwrite:  # who may only write is not allowed to ask whether it exists
        return output
    with _as_write_error(url), contextlib.suppress(FileNotFoundError):
        system.info(path)
        raise UsageError(f"{option} {url.shown} exists; choose another name, or add --overwrite")
    return output


@contextlib.contextmanager
def _as_write_error(url: RemoteUrl) -> Iterator[None]:
    """Raise WriteError, in one line and without secrets, for whatever fails in the block."""
    try:
        yield
    except ForecasterError:
        raise
    except Exception as error:  # each kind of store has errors of its own
        raise WriteError(f"{url.shown}: cannot be written: {url.reason(error)}") from None
