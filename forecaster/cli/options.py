"""Options that commands share, and what their values ask for."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from forecaster import distributed, forecasting, ingest, pipeline, storage, swarm
from forecaster.cli.output import Bars, bars, say
from forecaster.errors import UsageError, WriteError
from forecaster.files import Home, as_home, from_text
from forecaster.forecasting import ENCODINGS, MODELS, TRANSFORMS

PARTLY = 3


def home_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--home``, passed on as a Home; a subcommand also takes the ``--home`` of its group."""
    return click.option(
        "--home",
        envvar="FORECASTER_HOME",
        callback=_home,
        help="Folder for data and models.  "
        "[env var: FORECASTER_HOME; default: the user's data folder]",
    )(command)


stored_option = click.option("--source", help="Name of the stored source.  [default: the only one]")
overwrite_option = click.option(
    "--overwrite",
    is_flag=True,
    help="Replace existing files; without this option they are an error.",
)


def added(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Return options as one decorator of a command, in the order of its help."""
    return lambda command: functools.reduce(lambda made, one: one(made), options[::-1], command)


reading_options = added(
    click.option("--decimal", type=click.Choice([".", ","]), help="Decimal sign in CSV files.  "
                 "[default: inferred from each file's numbers]"),
    click.option("--columns", multiple=True, metavar="ROLES", help="Roles of columns in files: "
                 "id=store,time=day,target=sales, or wide if each column is a series. "
                 "id=store+item joins columns, time=day+hour a date and its hour."),
    click.option("--date-format", metavar="FORMAT", help="Format of dates in files, such as "
                 "%d/%m/%Y; s, ms, us or ns for numbers since 1970; excel for days of a "
                 "spreadsheet; steps for counts of steps; utc for times with an offset, read in "
                 "UTC.  [default: ISO 8601]"),
    click.option("--missing", metavar="MARKS", help="Marks of missing values in files, "
                 "separated by commas: n/a?,-99. A row with one in place of its date is left out."),
)  # fmt: skip
"""The options on how files are read."""
_file = click.Path(path_type=Path)
source_options = added(
    click.option("--tickers", metavar="FILE|LIST", help="Tickers separated by commas, or a file "
                 "with one a line; sp500.txt and dow30.txt are included. Or a file of members over "
                 "time: ticker,start,end.  [default: every series of the source]"),
    click.option("--source", default="yahoo", show_default=True, help="yahoo, simulated, "
                 "files:PATH (a CSV, a Parquet file or a folder of them), files:URL (the same at "
                 "s3://, gs:// or https://), or sql:URL (a PostgreSQL, SQLite or DuckDB database). "
                 "${NAME} in a URL is taken from the environment."),
    click.option("--query", metavar="SQL", help="For a database: one SELECT, or the name of "
                 "a table."),
    reading_options,
    click.option("--frequency", metavar="OFFSET", help="Frequency of rows in files, by a name of "
                 "pandas' offsets: D, B, W-MON, MS, QE-DEC, h, 15min. Rows that do not fit are "
                 "named.  [default: inferred]"),
)  # fmt: skip
"""The options on the source, and on how it is read."""
covariate_options = added(
    click.option("--static", type=_file, metavar="FILE", help="Facts about each series: rows "
                 "unique_id,... with numbers or words, such as a sector."),
    click.option("--future", type=_file, metavar="FILE", help="Numbers known in advance, up to the "
                 "horizon: rows unique_id,ds,... (or ds,... for all series); or a list of events, "
                 "such as earnings: rows ticker,date."),
)  # fmt: skip
"""``--future`` and ``--static``, for :func:`covariates_of`."""


def covariates_of(given: Mapping[str, Any]) -> "ingest.CovariateFiles":
    """Return the files of ``--future`` and ``--static``, and how other options read them."""
    if given["future"] is None and given["static"] is None:
        return ingest.CovariateFiles()
    return ingest.CovariateFiles.from_paths(given["future"], given["static"], columns_of(given))


READING = ("decimal", "columns", "date_format", "missing", "frequency")
"""The options on how files are read, by the names of their values."""


def columns_of(given: Mapping[str, Any]) -> "ingest.Columns":
    """Return the values of the options on how files are read, checked."""
    values: Any = {name: given.get(name) for name in READING if name != "columns"}
    return ingest.Columns.from_options(ingest.parse_columns(given["columns"]) | values)


def source_of(
    given: Mapping[str, Any], **more: Any
) -> "tuple[ingest.Source, list[str] | None, ingest.Membership | None]":
    """Open the source that options name; return it, the tickers, and the times of membership.

    ``more``: further arguments of :func:`forecaster.ingest.open_source`
    """
    source = ingest.open_source(
        given["source"], query=given["query"], columns=columns_of(given), **more
    )
    return source, *read_tickers(given["tickers"], source)


def read_tickers(
    path: str | None, source: "ingest.Source | None" = None
) -> "tuple[list[str] | None, ingest.Membership | None]":
    """Return the tickers of a file or list, and the times of membership if the file has them.

    ``source``: has their series. Raises UsageError if one may be any of several of its series.
    """
    if path is None:
        return None, None
    membership = None
    if (tickers := ingest.listed_tickers(path)) is None:
        membership = ingest.read_membership(path)
        tickers = ingest.read_universe(path) if membership is None else membership.tickers
    if source is not None:
        ingest.refuse_alike(source, tickers)
    return tickers, membership


def groups_option(use: str) -> Callable[..., Any]:
    """Return ``--groups``, passed on as Groups; ``use``: of the groups, in its help."""
    return click.option(
        "--groups", metavar="FILE.csv", type=lambda path: ingest.read_groups(from_text(path)),
        help=f"Groups {use}, such as sectors: a CSV with the columns ticker and group.",
    )  # fmt: skip


def _home(ctx: click.Context, option: click.Parameter, value: str | None) -> Home:
    """Return the home that is named; a name after a subcommand counts before that of its group."""
    of_group = None if ctx.parent is None else ctx.parent.params.get("home")
    return as_home(value) if was_given(ctx, "home") or of_group is None else of_group


def was_given(ctx: click.Context, name: str) -> bool:
    """Return whether an option was given on the command line."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse(*rules: tuple[object, str]) -> None:
    """Raise UsageError for the first rule that is broken: whether it is, and the message."""
    for broken, message in rules:
        if broken:
            raise UsageError(message)


THE_ONLY = THE_LATEST = ""
"""The values without a name of --resume, for the only interrupted fit, and of --update."""


def open_data(given: Mapping[str, Any]) -> "tuple[pipeline.DataRequest, ingest.Membership | None]":
    """Open the source that the options name; return what is asked for, and the times of members."""
    source, wanted, membership = source_of(given)
    rest = given["start"], given["end"], given["mask"], covariates_of(given)
    return pipeline.DataRequest(source, wanted, *rest), membership


def gone_options(**instead: str) -> Callable[..., Any]:
    """Return options that are gone, each with what to do in its place, which its error says."""

    def refuse(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
        if value is not None:
            why = f"{option.opts[0]} is gone; {instead[str(option.name)]}"
            raise click.NoSuchOption(option.opts[0], why, ctx=ctx)

    names = (f"--{name.replace('_', '-')}" for name in instead)
    hidden = {"hidden": True, "expose_value": False, "callback": refuse}
    return added(*(click.option(name, **hidden) for name in names))


def _flags(value: str) -> tuple[str, ...]:
    """Split flags at commas; ``none`` means no flags."""
    words = tuple(word.strip() for word in value.split(",") if word.strip())
    return () if words == ("none",) else words


_date = click.DateTime(["%Y-%m-%d"])
data_options = added(
    source_options,
    click.option("--start", type=_date, help="First date, YYYY-MM-DD."),
    click.option("--end", type=_date, help="Last date, YYYY-MM-DD."),
    click.option(
        "--mask",
        default="copied,reversed,unconfirmed",
        show_default=True,
        metavar="FLAGS",
        type=_flags,
        help="Leave rows with these flags (see `status`) out of training: none, or any of "
        "copied, reversed, unconfirmed, jump, ohlc, frozen, zero_volume.",
    ),
    gone_options(
        learn_from="fit more tickers beside few or young ones, and forecast yours",
        head="leave it out: networks forecast a Student-t distribution",
    ),
    covariate_options,
)
"""The options on the data to learn from, for :func:`open_data`."""


def _markets(text: str) -> list[str]:
    return [one.strip() for one in text.split(",")]


def _premium(value: str) -> float | str:
    """Return the number, or "none"."""
    if value.strip().casefold() == "none":
        return "none"
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(
            f"expected a share, such as 0.05 for 5 % a year, or none; got {value!r}"
        ) from None


_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "horizon": {"type": int, "help": "Steps to forecast.  [default: 5]"},
    "lookback": {"type": int, "help": "Latest rows that networks see.  [default: 60]"},
    "validation": {"type": int, "help": "Latest rows held back to calibrate.  [default: a quarter, "
                   "at most 252]"},
    "model": {"type": click.Choice(MODELS), "help": "auto: LSTMs for prices; for other series a "
              "combination of classical models, which LSTMs correct if enough series are long. "
              "Or one kind of network, or one classical model (ets, theta, ces) alone.  "
              "[default: auto]"},
    "hidden": {"type": int, "help": "Size of a network's hidden layer.  [default: 16]"},
    "epochs": {"type": int, "help": "Maximum number of epochs of a network.  [default: 100; 6 if "
               "it starts from the pooled network]"},
    "market": {"metavar": "TICKERS", "type": _markets, "help": "An index of the same source, such "
               "as SPY, or several, such as SPY,^VIX. All networks and the common model of "
               "volatility see it. It is forecast only if --tickers lists it, too."},
    "premium": {"metavar": "SHARE", "type": _premium, "help": "Growth of a price's mean in a "
                "year, in place of the drift that networks learned; 0: no growth; none: the "
                "learned drift.  [default: 0.05]"},
    "training": {"type": click.Choice(["auto", "sequence", "windowed"]), "help": "Learn at every "
                 "step of a window, or only at its last.  [default: auto]"},
    "transform": {"type": click.Choice(TRANSFORMS), "help": "What networks learn from: log returns "
                  "of prices, errors of a combination of forecasts, ...  [default: auto]"},
    "season": {"type": int, "multiple": True, "help": "Steps in a season; repeat for a longer one."
               "  [default: from the dates or the values]"},
    "start-from": {"type": click.Choice(["pooled", "independent"]), "help": "Start from networks "
                   "trained on all series, or from random weights, so that series do not "
                   "influence each other.  [default: pooled]"},
    "members": {"type": int, "help": "Networks averaged for each series.  [default: 1]"},
    "precision": {"type": click.Choice(["float32", "bfloat16"]), "help": "Precision of the matrix "
                  "products of LSTM and GRU; bfloat16 is faster on some processors (see `status`)."
                  "  [default: float32]"},
    "encoding": {"type": click.Choice(ENCODINGS), "help": "Store the model in less space: weights "
                 "in half precision, as bytes, or without the smallest; small: weights as bytes, "
                 "calibration in half precision.  [default: none]"},
}  # fmt: skip
"""The options that are settings of a Config, as click takes them."""
OF_EVALUATION = list(_SETTINGS)[:8]
"""The settings that ``evaluate`` has as options, too."""


memory_option = click.option(
    "--memory", metavar="SIZE", type=lambda size: pipeline.parse_memory(size),
    help="Memory to work in, such as 2GB; if the series do not fit into it together, they are "
    "read, trained and written in shards.  [default: 60 % of free memory]",
)  # fmt: skip
_WORKING = (
    click.option("--ray", metavar="auto|ADDRESS", help="Train on a Ray cluster: auto, the one that "
                 "this machine belongs to, or HOST:PORT. The networks are the same."),
    click.option("--config", metavar="FILE.toml", help="More settings, in a flat table; options "
                 "take precedence. `python -c 'import forecaster; help(forecaster.Config)'` "
                 "describes them."),
    click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True),
)  # fmt: skip


def settings_options(names: Iterable[str] = _SETTINGS) -> Callable[..., Any]:
    """Return the options on the settings, for :func:`config_of`, and on how to work."""
    return added(*(click.option(f"--{name}", **_SETTINGS[name]) for name in names), *_WORKING)


def config_of(given: Mapping[str, Any]) -> "forecasting.Config":
    """Return the settings that options and, after these, a file give.

    Raises UsageError for wrong ones, and with --tune for those that contradict a search.
    """
    file = given["config"]
    settings = {} if file is None else forecasting.read_settings(Path(file))
    for name in _SETTINGS:
        value = given.get(name.replace("-", "_"))
        if value not in (None, ()):
            settings["start" if name == "start-from" else name] = value
    for name, searched in (("start", "independent"), ("members", 1)) if given.get("tune") else ():
        if settings.get(name, searched) != searched:
            raise UsageError(
                f"--tune searches settings of one independent network per series, so {name} has to "
                f"be {searched}. Leave out {name} = {settings[name]}, or --tune"
            )
    return forecasting.Config.from_dict(settings, file or "options")


class Work(NamedTuple):
    """The executor, the callbacks and the progress bars of a command that trains."""

    executor: "swarm.Executor | None"
    callbacks: "pipeline.Callbacks"
    bar: Bars


@contextlib.contextmanager
def working(command: str, ray: str | None) -> Iterator[Work]:
    """Show progress in the block; if it is interrupted, or cannot write, note how to continue."""
    begun: list[storage.UnfinishedFit] = []
    try:
        with cluster(ray) as executor, bars() as bar:
            calls = pipeline.Callbacks(bar.fetching, bar.training, begun.append, say, bar.sharding)
            yield Work(executor, calls, bar)
    except (KeyboardInterrupt, WriteError) as error:
        if begun and begun[0].has_progress:
            others = len(list(begun[0].folder.parent.glob("*/"))) > 1
            name = f" {begun[0].name}" if others else ""
            error.add_note(f"Continue with `forecaster {command} --resume{name}`.")
        raise


def cluster(address: str | None) -> "AbstractContextManager[swarm.Executor | None]":
    """Return the executor that ``--ray`` names, or None, for this process, without it."""
    if address is None:
        return contextlib.nullcontext()
    return distributed.Ray(address, on_notice=say)


def refuse_others(ctx: click.Context, option: str, why: str, *but: str) -> None:
    """Raise UsageError if other options were given beside this one, apart from those in ``but``.

    ``why``: continues "--option" in the message.
    """
    for other in ctx.command.params:
        if other.name not in {"home", option, *but} and was_given(ctx, str(other.name)):
            raise UsageError(f"--{option} {why}; leave out {other.opts[0]}")
