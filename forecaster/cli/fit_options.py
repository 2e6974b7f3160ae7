"""Options and steps that ``fit`` and ``evaluate`` share."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import click

from forecaster import distributed, forecasting, ingest, pipeline, storage, swarm
from forecaster.cli.shared import (
    Bars,
    added,
    bars,
    covariate_options,
    covariates_of,
    say,
    source_of,
    source_options,
    was_given,
)
from forecaster.errors import UsageError, WriteError
from forecaster.forecasting import ENCODINGS, MODELS, TRANSFORMS

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
