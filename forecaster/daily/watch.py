"""Read the TOML file that says what a daily run watches."""

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from forecaster.errors import UsageError, printable
from forecaster.files import PAGES, TABLES, check_output, is_database, is_url
from forecaster.forecasting import read_settings

_DATABASE_FILE = re.compile(r"(sql:(?:sqlite|duckdb):///)([^:/$?][^:?]*)(\?.*)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_Text = Annotated[str, Meta(pattern=r"\S")]
_Count = Annotated[int, Meta(ge=0, le=100_000)]
_Rate = Annotated[float, Meta(ge=1e-6, le=0.5)]
_Money = Annotated[str, Meta(pattern=r"^\d+(\.\d+)?%?$")] | Annotated[float, Meta(gt=0)]
_Level = Annotated[float, Meta(ge=1, lt=100)]  # in percent

EXAMPLE = """\
# What `forecaster daily daily.toml` does each day. Only `source` must be given.
# Paths are relative to the folder of this file.

source = "files:prices.csv"      # or "yahoo"; as `ingest --source`
# query = "SELECT ..."           # of source = "sql:URL"; or the name of a table
# tickers = "tickers.txt"        # only these; a file or "AAPL,MSFT"; needed for yahoo
# append = true                  # the file holds only the latest days
# columns = ["id=symbol"]        # roles of columns; also date_format = "%d.%m.%Y", decimal = ",",
                                 # missing = "n/a?,-99", frequency = "W-MON"
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
# book = "book.csv"              # positions whose risk is measured, recorded and scored

[alarms]                         # false turns one off
coverage = 0.04                  # bands stopped covering: false alarms a session, at most
errors = 0.005                   # errors beyond those of "unchanged": false alarms a session
late = 2                         # sessions that a series may lack
jumped = true                    # a jump, or prices that look unadjusted
frozen = true                    # the same price for several sessions
shrunk = true                    # the source lacks stored rows
changed = true                   # tickers are new, or no longer in the source
model_age = 180                  # days since the fit
# risk = "5%"                    # value at risk of a book, see `risk --limit`; or money: 50000
"""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When to raise alarms.

    - ``coverage``, ``errors``: false alarms a session, at most, over all series; None: no alarm
    - ``late``: the number of sessions that a series may lack; None: any
    - ``jumped``, ``frozen``, ``shrunk``, ``changed``: whether to look for it
    - ``model_age``: the number of days for which a model is used without an alarm; None: any
    - ``risk``: the limit of the value at risk of each book, as text or money; None: none
    """

    coverage: _Rate | None = 0.04
    errors: _Rate | None = 0.005
    late: _Count | None = 2
    jumped: bool = True
    frozen: bool = True
    shrunk: bool = True
    changed: bool = True
    model_age: _Count | None = 180
    risk: _Money | None = None


class Watch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a daily run does; see :data:`EXAMPLE`. Paths are absolute.

    - ``name``: of the file without its ending; the state of the last run is kept under it
    - ``forecasts``: a file, or its URL; or a table of a database as ``sql:URL#TABLE``
    """

    name: str
    source: _Text
    query: _Text | None = None
    tickers: _Text | None = None
    append: bool = False
    columns: tuple[_Text, ...] = ()
    date_format: _Text | None = None
    missing: _Text | None = None
    decimal: _Text | None = None
    frequency: _Text | None = None
    run: _Text | None = None
    levels: Annotated[tuple[_Level, ...], Meta(min_length=1)] = (80.0, 95.0)
    newcomers: bool | None = None
    max_late: _Count | None = None
    forecasts: _Text | None = None
    layout: Literal["wide", "fixed"] = "wide"
    page: Path | None = None
    groups: Path | None = None
    scorecard: Path | None = None
    summary: Path | None = None
    book: Path | None = None
    alarms: Limits = Limits()


def read_watch(path: Path) -> Watch:
    """Read the file of a daily run. Raises UsageError for a setting that is unknown or wrong."""
    where, folder = printable(path, lines=False), path.resolve().parent
    if not _NAME.fullmatch(path.stem):
        raise UsageError(
            f"{where}: the name of the file names the daily run; expected at most 60 letters, "
            "digits, _ and -, such as daily.toml"
        )
    given = read_settings(path)
    known = [name for name in Watch.__struct_fields__ if name != "name"]
    for name in given.keys() - set(known):
        meant = "".join(f"; did you mean {one}?" for one in get_close_matches(name, known, 1))
        raise UsageError(f"{where}: no setting {name!r}{meant or '.'} There are {', '.join(known)}")
    for name in given.keys() & {"columns", "levels"}:  # one may be given without brackets
        given[name] = given[name] if isinstance(given[name], list) else [given[name]]
    if isinstance(limits := given.get("alarms"), dict):  # false turns one off
        given["alarms"] = {name: its if its is not False or name in _SWITCHES else None
                           for name, its in limits.items()}  # fmt: skip
    try:
        watch = msgspec.convert(
            given | {"name": path.stem}, Watch, dec_hook=lambda _, text: _path_in(folder, text)
        )
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{where}: {printable(str(error))}{_got(given, str(error))}. `forecaster daily "
            "--example` prints all settings"
        ) from error
    if "layout" in given and watch.forecasts is None:
        raise UsageError(f'{where}: layout is of a file; add forecasts = "forecasts.csv"')
    if watch.groups is not None and watch.page is None:
        raise UsageError(f'{where}: groups is for the page; add page = "forecasts.html"')
    if watch.alarms.risk is not None and watch.book is None:
        raise UsageError(f'{where}: alarms.risk is of a book; add book = "book.csv"')
    if given.get("layout") == "wide" and is_database(str(watch.forecasts)):
        raise UsageError(
            f'{where}: layout = "wide" is of files, as its columns change with the model; '
            "leave it out, since forecasts is a table of a database"
        )
    watch = _placed(watch, folder)
    _check_outputs(where, watch)
    return watch


def _got(given: object, error: str) -> str:
    """Return the value at the place that an error names, such as `$.alarms.late`, in words."""
    if "`$" not in error:
        return ""
    for name, number in re.findall(r"\.(\w+)|\[(\d+)\]", error.rpartition("`$")[2]):
        given = given[name or int(number)]  # pyright: ignore[reportIndexIssue]
    return f"; got {printable(msgspec.json.encode(given).decode())}"


def _placed(watch: Watch, folder: Path) -> Watch:
    """Return settings whose paths begin in a folder, with each level once."""
    forecasts, layout = watch.forecasts, watch.layout
    if forecasts is not None and is_database(forecasts):
        url, mark, table = forecasts.rpartition("#")
        forecasts, layout = f"{_source_in(folder, url)}{mark}{table}", "fixed"
    elif forecasts is not None and not is_url(forecasts):
        forecasts = str(_path_in(folder, forecasts))
    return msgspec.structs.replace(
        watch, source=_source_in(folder, watch.source), levels=tuple(sorted({*watch.levels})),
        tickers=watch.tickers and _tickers_in(folder, watch.tickers), forecasts=forecasts,
        layout=layout,
    )  # fmt: skip


_SWITCHES = ("jumped", "frozen", "shrunk", "changed")
_ENDINGS = {"forecasts": TABLES, "page": PAGES, "scorecard": PAGES, "summary": {".json": "json"}}


def _check_outputs(where: str, watch: Watch) -> None:
    """Raise UsageError for a file that cannot be written, or that is named twice."""
    written: dict[Path, str] = {}
    for name, endings in _ENDINGS.items():
        its: Path | str | None = getattr(watch, name)
        if its is None or is_database(str(its)) or is_url(str(its)):
            continue
        path = check_output(Path(its), endings, overwrite=True, option=f"{where}: {name} =").path
        if path in written:
            raise UsageError(f"{where}: {name} and {written[path]} are the same file, {path}")
        written[path] = name


def _path_in(folder: Path, text: object) -> Path:
    """Return a path of the file, which begins in its folder. Raises TypeError, ValueError."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"Expected a path, got {text!r}")
    return folder / Path(text).expanduser()


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
