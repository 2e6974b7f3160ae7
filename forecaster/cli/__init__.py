"""The command ``forecaster``. Each command parses, calls the library and prints; it has no logic.

The rooms of the package, such as :mod:`forecaster.pipeline`, load a module when one of its names is
first used, so that ``--help`` is immediate. A room with the name of a command, or of what it makes,
is called ``room`` there, and that of pages ``pages``.
"""

import click

from forecaster import __version__
from forecaster.cli.benchmark import benchmark
from forecaster.cli.daily import daily, scorecard
from forecaster.cli.evaluate import evaluate, report
from forecaster.cli.explain import explain
from forecaster.cli.fit import fit
from forecaster.cli.ingest import adjust, export, ingest, tickers
from forecaster.cli.predict import predict
from forecaster.cli.risk import risk
from forecaster.cli.running import Commands
from forecaster.cli.status import prune, runs, status


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="forecaster")
def main() -> None:
    """Forecast hundreds of series, each by its own small networks.

    \b
    forecaster fit --tickers sp500.txt      train on Yahoo's daily prices
    forecaster predict AAPL                 price forecasts with bands
    forecaster explain AAPL                 why a band is as wide, and what changed
    forecaster risk book.csv                what a book of positions may lose
    forecaster daily daily.toml             update, forecast, score and raise alarms, for cron
    forecaster scorecard                    how good the past forecasts of `predict` were
    forecaster runs                         saved runs; compare, rename, remove them
    forecaster evaluate --tickers sp500.txt backtest against baselines
    forecaster report                       the latest evaluation as a page
    forecaster ingest --tickers sp500.txt   fetch missing prices, without training
    forecaster tickers retire FB            no more rows of it are to come
    forecaster adjust                       splits that a source has left out
    forecaster status                       stored data, problems in them, trained runs
    forecaster prune                        what a home no longer needs; --yes removes it
    forecaster export --output prices.csv   stored prices for other programs
    forecaster benchmark                    how fast this machine trains, beside PyTorch

    Exit codes: 0 done; 1 error; 2 wrong usage; 3 done for some series, the others named;
    4 done, with alarms (`daily`, `risk`); 130 interrupted by Ctrl-C; 143 stopped by SIGTERM; 129 by
    SIGHUP. A fit keeps its progress.
    """


for command in (
    ingest, fit, predict, explain, risk, daily, scorecard, runs, evaluate, report, status, tickers,
    adjust, prune, export, benchmark,
):  # fmt: skip
    main.add_command(command)
