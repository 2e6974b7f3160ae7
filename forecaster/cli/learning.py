"""Options and steps that ``fit`` and ``evaluate`` share."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from forecaster.cli.resuming import resumable
from forecaster.cli.shared import (
    Bars,
    as_columns,
    bars,
    columns_option,
    covariate_options,
    date_format_option,
    decimal_option,
    query_option,
    read_tickers,
    say,
    source_option,
    tickers_option,
)
from forecaster.forecasting import MODELS

if TYPE_CHECKING:
    from forecaster.files import Home
    from forecaster.ingest import CovariateFiles, Membership
    from forecaster.pipeline import Callbacks, DataRequest
    from forecaster.swarm import Executor


class Data(NamedTuple):
    """What the options of :func:`data_options` say."""

    tickers: str | None
    source: str
    query: str | None
    start: datetime | None
    end: datetime | None
    mask: tuple[str, ...]
    decimal: str | None
    columns: tuple[str, ...]
    date_format: str | None
    covariates: "CovariateFiles"

    def open(self, home: "Home") -> "tuple[DataRequest, Membership | None]":
        """Open the source; return what is asked for, and the times of membership if there are."""
        from forecaster.ingest import open_source
        from forecaster.pipeline import DataRequest

        opened = open_source(
            self.source, decimal=self.decimal, columns=as_columns(self.columns, self.date_format),
            query=self.query,
        )  # fmt: skip
        wanted, membership = read_tickers(self.tickers, opened)
        request = DataRequest(opened, wanted, self.start, self.end, self.mask, self.covariates)
        return request, membership


def _added(command: Callable[..., Any], *options: Callable[..., Any]) -> Callable[..., Any]:
    """Add options to a command, in the order of its help."""
    return functools.reduce(lambda made, option: option(made), reversed(options), command)


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options on the data to learn from, passed on together as ``data``."""

    @functools.wraps(command)
    def with_data(*args: Any, **options: Any) -> Any:
        data = Data(**{name: options.pop(name) for name in Data._fields})
        return command(*args, data=data, **options)

    date = click.DateTime(["%Y-%m-%d"])
    return _added(
        with_data,
        tickers_option, source_option, query_option, decimal_option, columns_option,
        date_format_option,
        click.option("--start", type=date, help="First date, YYYY-MM-DD."),
        click.option("--end", type=date, help="Last date, YYYY-MM-DD."),
        click.option(
            "--mask",
            default="copied,reversed,unconfirmed",
            show_default=True,
            metavar="FLAGS",
            callback=lambda ctx, option, value: _flags(value),
            help="Leave rows with these flags (see `status`) out of training: none, or any of "
            "copied, reversed, unconfirmed, jump, ohlc, frozen, zero_volume.",
        ),
        covariate_options,
    )  # fmt: skip


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options on the settings, and on how to work, that both commands have."""
    return _added(
        command,
        click.option("--horizon", type=int, help="Steps to forecast.  [default: 5]"),
        click.option(
            "--lookback", type=int, help="Latest rows a forecast is made from.  [default: 60]"
        ),
        click.option(
            "--validation",
            type=int,
            help="Latest rows held back to calibrate.  [default: a quarter, at most 252]",
        ),
        click.option(
            "--model",
            type=click.Choice(MODELS),
            help="auto: an LSTM for each series, or, where other series than prices are short, a "
            "combination of simple forecasts and classical models; or one kind of network, or one "
            "classical model (ets, theta, ces) alone.  [default: auto]",
        ),
        click.option("--hidden", type=int, help="Size of a network's hidden layer.  [default: 16]"),
        click.option(
            "--epochs",
            type=int,
            help="Maximum number of epochs of a network.  "
            "[default: 100; 20 if it starts from the pooled network]",
        ),
        click.option(
            "--market",
            metavar="TICKERS",
            callback=lambda ctx, param, value: value and [one.strip() for one in value.split(",")],
            help="An index of the same source, such as SPY, or several, such as SPY,^VIX; all "
            "networks, and the model of volatility that tickers share, see their changes and "
            "volatility. An index is forecast only if it is listed as well.",
        ),
        click.option(
            "--premium",
            metavar="SHARE",
            callback=_premium,
            help="Growth of a price's mean in a year, in place of the drift that networks learned "
            "from the past; the median grows by half the variance less. 0: prices stay where they "
            "are in the mean, but for what their own history tells; none: the learned drift. Other "
            "series have none.  [default: 0.05]",
        ),
        click.option(
            "--memory",
            metavar="SIZE",
            help="Memory to work in, such as 2GB; if the series do not fit into it together, they "
            "are read, trained and written in shards.  [default: 60 % of free memory]",
        ),
        click.option(
            "--ray",
            metavar="auto|ADDRESS",
            help="Train on the nodes of a Ray cluster: auto, the one that this machine belongs to, "
            "or HOST:PORT. The networks are the same.",
        ),
        click.option(
            "--config",
            metavar="FILE.toml",
            help="More settings, in a flat table; options take precedence. "
            "`python -c 'import forecaster; help(forecaster.Config)'` describes all of them.",
        ),
        click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True),
    )


def settings_of(
    config: str | None, options: Mapping[str, Any], names: Sequence[str]
) -> dict[str, Any]:
    """Return the settings of a file, and over them those of the named options that were given."""
    from forecaster.forecasting import read_settings

    settings = read_settings(Path(config)) if config is not None else {}
    return settings | {name: options[name] for name in names if options[name] is not None}


class Work(NamedTuple):
    """The executor, the callbacks and the progress bars of a command that trains."""

    executor: "Executor | None"
    callbacks: "Callbacks"
    bar: Bars


@contextlib.contextmanager
def working(command: str, ray: str | None) -> Iterator[Work]:
    """Show progress in the block; if it is interrupted, say how to continue."""
    from forecaster.cli.skipped import in_lines
    from forecaster.pipeline import Callbacks

    with cluster(ray) as executor, in_lines(), resumable(command) as begin, bars() as bar:
        yield Work(
            executor, Callbacks(bar.fetching, say, bar.training, begin, say, bar.sharding), bar
        )


@contextlib.contextmanager
def cluster(address: str | None) -> "Iterator[Executor | None]":
    """Yield the executor that ``--ray`` names, or None, for this process, without it."""
    if address is None:
        yield None
        return
    from forecaster.distributed import Ray

    with Ray(address, on_notice=say) as executor:
        yield executor


def _premium(ctx: click.Context, param: click.Parameter, value: str | None) -> float | str | None:
    """Return the number, or "none"; None where the option is not given."""
    if value is None or value.strip().casefold() == "none":
        return None if value is None else "none"
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(
            f"expected a share, such as 0.05 for 5 % a year, or none; got {value!r}"
        ) from None


def _flags(value: str) -> tuple[str, ...]:
    """Split flags at commas; ``none`` means no flags."""
    words = tuple(word.strip() for word in value.split(",") if word.strip())
    return () if words == ("none",) else words
