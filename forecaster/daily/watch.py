"""Read the TOML file that says what a daily run watches."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from forecaster.errors import UsageError, printable
from forecaster.files import PAGES, TABLES, is_database, is_url
from forecaster.forecasting import read_settings

_DATABASE_FILE = re.compile(r"(sql:(?:sqlite|duckdb):///)([^:/$?][^:?]*)(\?.*)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")

EXAMPLE = """\
# What `forecaster daily daily.toml` does each day. Only `source` must be given.
# Paths are relative to the folder of this file.

source = "files:prices.csv"      # or "yahoo"; as `ingest --source`
# query = "SELECT ..."           # of source = "sql:URL"; or the name of a table
# tickers = "tickers.txt"        # only these; a file or "AAPL,MSFT"; needed for yahoo
# append = true                  # the file holds only the latest days
# columns = ["id=symbol"]        # roles of columns; also date_format = "%d.%m.%Y", decimal = ","
# run = "tech-daily"             # default: the latest run of this source
levels = [80, 95]                # bands, in percent
# newcomers = false              # default: as `predict --all`
# max_late = 5                   # leave out series that lack more sessions

forecasts = "forecasts.csv"      # replaced each day; .csv, .json, .parquet or .xlsx; or the URL
                                 # of one, "s3://bucket/forecasts.csv"; or a table of a
                                 # database: "sql:sqlite:///desk.db#forecasts"
# layout = "fixed"               # columns that never change, see `predict --layout`
# page = "forecasts.html"
# groups = "sectors.csv"         # groups for the page
# scorecard = "scorecard.html"
# summary = "summary.json"       # what was done, for programs

[alarms]                         # false turns one off
coverage = 0.04                  # bands stopped covering: false alarms a session, at most
errors = 0.005                   # errors beyond those of "unchanged": false alarms a session
late = 2                         # sessions that a series may lack
jumped = true                    # a jump, or prices that look unadjusted
frozen = true                    # the same price for several sessions
shrunk = true                    # the source lacks stored rows
changed = true                   # tickers are new, or no longer in the source
model_age = 180                  # days since the fit
"""


@dataclasses.dataclass(frozen=True)
class Limits:
    """When to raise alarms.

    - ``coverage``, ``errors``: false alarms a session, at most, over all series; None: no alarm
    - ``late``: the number of sessions that a series may lack; None: any
    - ``jumped``, ``frozen``, ``shrunk``, ``changed``: whether to look for it
    - ``model_age``: the number of days for which a model is used without an alarm; None: any
    """

    coverage: float | None = 0.04
    errors: float | None = 0.005
    late: int | None = 2
    jumped: bool = True
    frozen: bool = True
    shrunk: bool = True
    changed: bool = True
    model_age: int | None = 180


@dataclasses.dataclass(frozen=True)
class Watch:
    """What a daily run does; see :data:`EXAMPLE`. Paths are absolute.

    - ``name``: of the file without its ending; the state of the last run is kept under it
    - ``forecasts``: a file; or a text, the URL of one or a table of a database as ``sql:URL#TABLE``
    """

    name: str
    source: str
    query: str | None = None
    tickers: str | None = None
    append: bool = False
    columns: tuple[str, ...] = ()
    date_format: str | None = None
    decimal: str | None = None
    run: str | None = None
    levels: tuple[float, ...] = (80.0, 95.0)
    newcomers: bool | None = None
    max_late: int | None = None
    forecasts: Path | str | None = None
    layout: str = "wide"
    page: Path | None = None
    groups: Path | None = None
    scorecard: Path | None = None
    summary: Path | None = None
    alarms: Limits = dataclasses.field(default_factory=Limits)


def read_watch(path: Path) -> Watch:
    """Read the file of a daily run. Raises UsageError for a setting that is unknown or wrong."""
    where = printable(path, lines=False)
    if not _NAME.fullmatch(path.stem):
        raise UsageError(
            f"{where}: the name of the file names the daily run; expected at most 60 letters, "
            "digits, _ and -, such as daily.toml"
        )
    given = read_settings(path)
    limits = given.pop("alarms", {})
    if not isinstance(limits, dict):
        raise UsageError(f"{where}: alarms: expected a table, [alarms]; got {limits!r}")
    _check_names(where, given, [*_KINDS])
    _check_names(f"{where}: [alarms]", limits, [*_LIMITS])
    if "source" not in given:
        raise UsageError(
            f'{where}: no setting source; expected one, such as source = "files:prices.csv". '
            "`forecaster daily --example` prints a file to start from"
        )
    checked = {n: _checked(where, n, value, _KINDS[n]) for n, value in given.items()}
    alarms = {n: _limit(f"{where}: [alarms]", n, value) for n, value in limits.items()}
    if "levels" in checked:
        checked["levels"] = tuple(sorted(checked["levels"]))
    folder = path.resolve().parent
    for name in _PATHS & checked.keys():
        if name == "forecasts" and is_database(checked[name]):
            checked |= _table_in(folder, where, checked[name], checked.get("layout"))
        elif not (name == "forecasts" and is_url(checked[name])):
            checked[name] = folder / Path(checked[name]).expanduser()
    checked["source"] = _source_in(folder, checked["source"])
    if "tickers" in checked:
        checked["tickers"] = _tickers_in(folder, checked["tickers"])
    _check_outputs(where, checked)
    return Watch(path.stem, **checked, alarms=Limits(**alarms))


def _check_names(where: str, given: Mapping[str, object], known: Sequence[str]) -> None:
    for name in given:
        if name in known:
            continue
        close = get_close_matches(name, known, n=1)
        advice = f"did you mean {close[0]}? There are" if close else "there are"
        raise UsageError(
            f"{where}: no setting {printable(name, lines=False)!r}; {advice} {', '.join(known)}"
        )


def _check_outputs(where: str, checked: Mapping[str, Any]) -> None:
    """Raise UsageError for files of a wrong ending, the same file twice, and a lonely option."""
    endings = {"forecasts": TABLES, "page": PAGES, "scorecard": PAGES, "summary": {".json": "json"}}
    written: dict[Path, str] = {}
    for name in endings.keys() & checked.keys():
        path: Path | str = checked[name]
        if isinstance(path, str):
            continue  # a URL, or a table of a database
        if path.suffix.lower() not in endings[name]:
            raise UsageError(
                f"{where}: {name}: expected a file that ends with {' or '.join(endings[name])}; "
                f"got {path.name!r}"
            )
        if not path.parent.is_dir():
            raise UsageError(f"{where}: {name}: there is no folder {path.parent}; make it first")
        if path in written:
            raise UsageError(f"{where}: {name} and {written[path]} are the same file, {path}")
        written[path] = name
    if "layout" in checked and "forecasts" not in checked:
        raise UsageError(f'{where}: layout is of a file; add forecasts = "forecasts.csv"')
    if "groups" in checked and "page" not in checked:
        raise UsageError(f'{where}: groups is for the page; add page = "forecasts.html"')


def _table_in(folder: Path, where: str, name: str, layout: str | None) -> dict[str, str]:
    """Return the settings of a table in a database, whose file begins in a folder."""
    if layout == "wide":
        raise UsageError(
            f'{where}: layout = "wide" is of files, as its columns change with the model; leave it '
            "out, since forecasts is a table of a database"
        )
    url, mark, table = name.rpartition("#")
    return {"forecasts": f"{_source_in(folder, url)}{mark}{table}", "layout": "fixed"}


def _source_in(folder: Path, source: str) -> str:
    """Return a source whose path, if it has one, begins in a folder."""
    if database := _DATABASE_FILE.fullmatch(source):
        return f"{database[1]}{folder / Path(database[2]).expanduser()}{database[3] or ''}"
    kind, colon, path = source.partition(":")
    if kind != "files" or not path or "://" in path:
        return source
    return f"{kind}{colon}{folder / Path(path).expanduser()}"


def _tickers_in(folder: Path, tickers: str) -> str:
    """Return tickers, as a path in a folder if there is such a file."""
    path = folder / Path(tickers).expanduser()
    return str(path) if "," not in tickers and path.exists() else tickers


def _checked(where: str, name: str, value: object, kind: Any) -> Any:
    """Return a setting as a value of this type. Raises UsageError."""
    if name in ("columns", "levels") and not isinstance(value, list):
        value = [value]
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        got = printable(repr(value)[:80])
        raise UsageError(f"{where}: {name}: {printable(str(error))}; got {got}") from error


def _limit(where: str, name: str, value: object) -> Any:
    """Return a setting of an alarm; None if it is turned off."""
    kind = _LIMITS[name]
    return None if value is False and kind is not bool else _checked(where, name, value, kind)


_TEXT = Annotated[str, Meta(pattern=r"\S")]
_COUNT = Annotated[int, Meta(ge=0, le=100_000)]
_RATE = Annotated[float, Meta(ge=1e-6, le=0.5)]
_LEVELS = Annotated[set[Annotated[float, Meta(ge=1, lt=100)]], Meta(min_length=1)]  # in percent
_PATHS = {"forecasts", "page", "groups", "scorecard", "summary"}
_KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("source", "query", "tickers", "date_format", "decimal", "run"), _TEXT),
    **dict.fromkeys(_PATHS, _TEXT),
    "append": bool, "columns": tuple[_TEXT, ...], "levels": _LEVELS, "newcomers": bool,
    "max_late": _COUNT, "layout": Literal["wide", "fixed"],
}  # fmt: skip
_LIMITS: Mapping[str, Any] = {
    "coverage": _RATE, "errors": _RATE, "late": _COUNT, "jumped": bool,
    "frozen": bool, "shrunk": bool, "changed": bool, "model_age": _COUNT,
}  # fmt: skip
