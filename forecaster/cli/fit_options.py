"""Options and steps that ``fit`` and ``evaluate`` share."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from forecaster.cli.shared import (
    SOURCE_OPTIONS,
    Bars,
    added,
    as_columns,
    bars,
    covariate_options,
    covariates_of,
    read_tickers,
    say,
    was_given,
)
from forecaster.errors import UsageError, WriteError
from forecaster.forecasting import ENCODINGS, MODELS, TRANSFORMS

if TYPE_CHECKING:
    from forecaster.ingest import Membership
    from forecaster.pipeline import Callbacks, DataRequest
    from forecaster.storage import UnfinishedFit
    from forecaster.swarm import Executor

THE_ONLY = THE_LATEST = ""
"""The values without a name of --resume, for the only interrupted fit, and of --update."""


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
    static: Path | None
    future: Path | None

    def open(self) -> "tuple[DataRequest, Membership | None]":
        """Open the source; return what is asked for, and the times of membership if there are."""
        from forecaster.ingest import open_source
        from forecaster.pipeline import DataRequest

        opened = open_source(
            self.source, decimal=self.decimal, columns=as_columns(self.columns, self.date_format),
            query=self.query,
        )  # fmt: skip
        wanted, membership = read_tickers(self.tickers, opened)
        covariates = covariates_of(self._asdict())
        request = DataRequest(opened, wanted, self.start, self.end, self.mask, covariates)
        return request, membership


_GONE = {
    "--learn-from": "fit more tickers beside few or young ones, and forecast yours",
    "--head": "leave it out: networks forecast a Student-t distribution",
}


def _refuse_gone(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    """Say what to do in place of an option of earlier versions."""
    if value is not None:
        raise click.NoSuchOption(name := option.opts[0], f"{name} is gone; {_GONE[name]}", ctx=ctx)


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options on the data to learn from, passed on together as ``data``."""

    @functools.wraps(command)
    def with_data(*args: Any, **options: Any) -> Any:
        data = Data(**{name: options.pop(name) for name in Data._fields})
        return command(*args, data=data, **options)

    date = click.DateTime(["%Y-%m-%d"])
    return added(
        with_data,
        *SOURCE_OPTIONS,
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
        *(click.option(name, hidden=True, expose_value=False, callback=_refuse_gone)
          for name in _GONE),
        covariate_options,
    )  # fmt: skip


_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "horizon": {"type": int, "help": "Steps to forecast.  [default: 5]"},
    "lookback": {"type": int, "help": "Latest rows a forecast is made from.  [default: 60]"},
    "validation": {"type": int, "help": "Latest rows held back to calibrate.  [default: a quarter, "
                   "at most 252]"},
    "model": {"type": click.Choice(MODELS), "help": "auto: LSTMs for prices; for other series a "
              "blend of classical models, which LSTMs correct where enough series are long. Or one "
              "kind of network, or one classical model (ets, theta, ces) alone.  [default: auto]"},
    "hidden": {"type": int, "help": "Size of a network's hidden layer.  [default: 16]"},
    "epochs": {"type": int, "help": "Maximum number of epochs of a network.  [default: 100; 20 if "
               "it starts from the pooled network]"},
    "market": {"metavar": "TICKERS", "callback": lambda ctx, option, value: value and [
               one.strip() for one in value.split(",")], "help": "An index of the same source, "
               "such as SPY, or several, such as SPY,^VIX. All networks, and the model of "
               "volatility that tickers share, see the index. It is forecast only if it is "
               "listed as well."},
    "premium": {"metavar": "SHARE", "callback": lambda ctx, option, value: _premium(value),
                "help": "Growth of a price's mean in a year, in place of the drift that networks "
                "learned; 0: no growth but that of the ticker's own history; none: the learned "
                "drift.  [default: 0.05]"},
    "training": {"type": click.Choice(["auto", "sequence", "windowed"]), "help": "Learn at every "
                 "step of a window, or only at its last.  [default: auto]"},
    "transform": {"type": click.Choice(TRANSFORMS), "help": "What networks see of a series, such "
                  "as log returns of prices, or errors of a blend of simple forecasts.  "
                  "[default: auto]"},
    "season": {"type": int, "multiple": True, "help": "Steps in a season; repeat for a longer one."
               "  [default: from the dates or the values]"},
    "start-from": {"type": click.Choice(["pooled", "independent"]), "help": "Start each series' "
                   "networks from one trained on all series, or from random weights, so that "
                   "series do not influence each other.  [default: pooled]"},
    "members": {"type": int, "help": "Networks averaged for each series.  [default: 3]"},
    "precision": {"type": click.Choice(["float32", "bfloat16"]), "help": "Precision of the matrix "
                  "products of LSTM and GRU; bfloat16 is faster on some processors (see `status`)."
                  "  [default: float32]"},
    "encoding": {"type": click.Choice(ENCODINGS), "help": "Write the weights in less space: in "
                 "half precision, as bytes, or without the smallest ones; small, as bytes with "
                 "calibration in half precision, costs least.  [default: none]"},
}  # fmt: skip
"""The options that are settings of a Config, as click takes them."""
OF_EVALUATION = list(_SETTINGS)[:8]
"""The settings that ``evaluate`` has as options, too."""


def settings_options(names: Iterable[str] = _SETTINGS) -> Callable[..., Any]:
    """Add the options on the settings, and on how to work.

    The command gets as ``settings`` those that were given, by options or, after these, in a file.
    """

    def with_settings_of(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_settings(*args: Any, config: str | None, **options: Any) -> Any:
            from forecaster.forecasting import read_settings

            settings = read_settings(Path(config)) if config is not None else {}
            for name in names:
                given = options.pop(name.replace("-", "_"))
                if given not in (None, ()):
                    settings["start" if name == "start-from" else name] = given
            return command(*args, settings=settings, **options)

        return added(with_settings, *(click.option(f"--{n}", **_SETTINGS[n]) for n in names),
                      *_WORKING)  # fmt: skip

    return with_settings_of


_WORKING = (
    click.option("--memory", metavar="SIZE", callback=lambda ctx, option, value: _bytes(value),
                 help="Memory to work in, such as 2GB; if the series do not fit into it together, "
                 "they are read, trained and written in shards.  [default: 60 % of free memory]"),
    click.option("--ray", metavar="auto|ADDRESS", help="Train on the nodes of a Ray cluster: auto, "
                 "the one that this machine belongs to, or HOST:PORT. The networks are the same."),
    click.option("--config", metavar="FILE.toml", help="More settings, in a flat table; options "
                 "take precedence. `python -c 'import forecaster; help(forecaster.Config)'` "
                 "describes all of them."),
    click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True),
)  # fmt: skip


class Work(NamedTuple):
    """The executor, the callbacks and the progress bars of a command that trains."""

    executor: "Executor | None"
    callbacks: "Callbacks"
    bar: Bars


@contextlib.contextmanager
def working(command: str, ray: str | None) -> Iterator[Work]:
    """Show progress in the block; if it is interrupted, or cannot write, note how to continue."""
    from forecaster.pipeline import Callbacks

    begun: list[UnfinishedFit] = []
    try:
        with cluster(ray) as executor, bars() as bar:
            calls = Callbacks(bar.fetching, say, bar.training, begun.append, say, bar.sharding)
            yield Work(executor, calls, bar)
    except (KeyboardInterrupt, WriteError) as error:
        if begun and begun[0].has_progress:
            others = len(list(begun[0].folder.parent.glob("*/"))) > 1
            name = f" {begun[0].name}" if others else ""
            error.add_note(f"Continue with `forecaster {command} --resume{name}`.")
        raise


def cluster(address: str | None) -> "AbstractContextManager[Executor | None]":
    """Return the executor that ``--ray`` names, or None, for this process, without it."""
    if address is None:
        return contextlib.nullcontext()
    from forecaster.distributed import Ray

    return Ray(address, on_notice=say)


def _bytes(value: str | None) -> int | None:
    """Return the number of bytes that a size such as 2GB stands for."""
    from forecaster.pipeline import parse_memory

    return None if value is None else parse_memory(value)


def _premium(value: str | None) -> float | str | None:
    """Return the number, or "none"; None where the option is not given."""
    if value is None or value.strip().casefold() == "none":
        return value and "none"
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


def refuse_others(ctx: click.Context, option: str, why: str, *but: str) -> None:
    """Raise UsageError if other options were given beside this one, apart from those in ``but``.

    ``why``: continues "--option" in the message.
    """
    for other in ctx.command.params:
        if other.name not in {"home", option, *but} and was_given(ctx, str(other.name)):
            raise UsageError(f"--{option} {why}; leave out {other.opts[0]}")
