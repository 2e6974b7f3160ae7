"""The command ``forecaster``. Each command parses, calls the library and prints; it has no logic.

The rooms of the package, such as :mod:`forecaster.pipeline`, load a module when one of its names is
first used, so that ``--help`` is immediate. A room with the name of a command, or of what it makes,
is called ``room`` there, and that of pages ``pages``.
"""

import contextlib
import sys
from typing import Any

import click

from forecaster import __version__
from forecaster.cli.adjust import adjust
from forecaster.cli.benchmark import benchmark
from forecaster.cli.daily import daily
from forecaster.cli.evaluate import evaluate, report
from forecaster.cli.explain import explain
from forecaster.cli.fit import fit
from forecaster.cli.ingest import export, ingest
from forecaster.cli.predict import predict
from forecaster.cli.prune import prune
from forecaster.cli.risk import risk
from forecaster.cli.runs import runs
from forecaster.cli.scorecard import scorecard
from forecaster.cli.shared import say
from forecaster.cli.status import status
from forecaster.cli.stopping import exit_code, stoppable, word
from forecaster.cli.streams import prepare_streams, quiet_libraries, say_output_failed
from forecaster.cli.tickers import tickers
from forecaster.errors import ForecasterError, StoreError, WriteError

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"  # as XLA says it


class _Commands(click.Group):
    """Turn the library's errors into one clear message and an exit code."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Parse the command line and run its command, on streams that can be written to."""
        try:
            prepare_streams()
            return super().main(*args, **options)
        except ForecasterError as error:  # raised while a help is shown, before any command runs
            say(f"Error: {error}")
            sys.exit(error.exit_code)
        except OSError as error:
            say_output_failed(error)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and exit with the code that it returns, or that of its error.

        A note of an interruption or of an error says how to go on.
        """
        try:
            with stoppable(), quiet_libraries():
                ctx.exit(super().invoke(ctx) or 0)
        except ForecasterError as error:
            stored = isinstance(error, WriteError | StoreError)
            elsewhere = stored and isinstance(error.__cause__, OSError)
            notes = getattr(error, "__notes__", ()) if stored else ()  # libraries add some, too
            where = " (--home for data and models)" if elsewhere else ""
            say(f"Error: {'. '.join([str(error), *notes])}{where}")
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            raise  # click ends quietly
        except OSError as error:
            if error.filename is None:
                say_output_failed(error)
            else:
                say(f"Error: {error.filename}: {error.strerror or error}")
            ctx.exit(1)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and _OUT_OF_MEMORY not in str(error):
                raise
            say(
                f"Error: out of memory: {str(error)[:200] or 'no reason given'}. Smaller settings "
                "(--horizon, --lookback, --hidden), fewer series or --memory need less"
            )
            ctx.exit(1)
        except KeyboardInterrupt as error:
            again = ["Nothing is left half-written; run the same command again."]
            with contextlib.suppress(OSError):  # the terminal may be gone
                say(" ".join([f"{word(error)}.", *getattr(error, "__notes__", again)]))
            ctx.exit(exit_code(error))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
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
