"""Other prices that a fit learns the common model of volatility from: ``--learn-from``."""

import warnings
from pathlib import Path

from forecaster.errors import DataError, ForecasterWarning, UsageError, printable
from forecaster.files import Home, from_text, is_run
from forecaster.ingest import load_panel
from forecaster.series import Panel, first_of
from forecaster.storage import FitRequest, OpenRun


def find_auxiliary(home: Home, given: str) -> Path:
    """Return the file, the folder or the run that a user names.

    Raises UsageError if there is none of these.
    """
    path = Path(given)
    if given.strip() and path.exists():
        if Home(path).runs():
            return Home(path).latest_run().resolve()
        if is_run(path) or not home.folder.resolve().is_relative_to(path.resolve()):
            return path.resolve()
        raise UsageError(
            f"--learn-from {printable(given, lines=False)}: expected a file or a folder of prices; "
            f"this folder holds the home {home}"
        )
    try:
        return home.find_run(given).resolve()
    except UsageError as error:
        raise UsageError(
            f"--learn-from {printable(given, lines=False) or repr(given)}: no such file or folder, "
            f"and {error}"
        ) from error


def with_auxiliary(panel: Panel, request: FitRequest) -> Panel:
    """Return a panel with the other series, or the learned weights, that a request names.

    Raises DataError if they cannot be read, and UsageError if the fit cannot use them.
    """
    if request.learn_from is None:
        return panel
    path = from_text(request.learn_from)
    where = f"--learn-from {printable(path, lines=False)}"
    if not is_run(path):
        other = _prices(path, where)
    else:
        run = OpenRun.of(path)
        other = run.model(run.ids[:1]).common_weights
        if other is None:
            raise UsageError(
                f"{where}: this run has no common model of volatility; expected a fit of at least "
                "ten prices, or of fewer beside a market, with two years of rows; or a file with "
                "such prices"
            )
    try:
        return panel.with_auxiliary(other)
    except UsageError as error:
        raise UsageError(f"{where}: {str(error).removeprefix('learn-from: ')}") from error


def _prices(path: Path, where: str) -> Panel:
    """Read the other prices, and warn of series that cannot be used."""
    try:
        panel = load_panel(f"files:{path}")
    except DataError as error:
        raise DataError(
            f"{where}: {error}\n(--columns, --date-format and --decimal are for --source; this "
            "file needs the usual names of columns)"
        ) from error
    if panel.skipped:
        warnings.warn(
            f"{where}: {len(panel.skipped):,} series left out: {first_of(panel.skipped)}",
            ForecasterWarning,
            stacklevel=2,
        )
    return panel
