"""Other prices that a fit learns the common model of volatility from: ``--learn-from``."""

import hashlib
from pathlib import Path

from forecaster.errors import DataError, UsageError, printable
from forecaster.files import from_text, read_plain
from forecaster.home import Home, is_run
from forecaster.ingest import load_panel
from forecaster.series import Panel
from forecaster.storage import FitRequest, OpenRun


def find_auxiliary(home: Home, given: str) -> Path:
    """Return the file, the folder or the run that a user names.

    Raises UsageError if there is none of these.
    """
    path = Path(given)
    if path.exists():
        home_there = Home(path)
        return (home_there.latest_run() if home_there.runs() else path).resolve()
    try:
        return home.find_run(given).resolve()
    except UsageError as error:
        raise UsageError(
            f"--learn-from {printable(given, lines=False)}: no such file or folder, and {error}"
        ) from error


def digest_of(path: Path) -> str:
    """Return a hash of what is learned from. Raises DataError if it cannot be read."""
    files = [path] if path.is_file() else sorted(path.glob("*.json" if is_run(path) else "**/*"))
    digest = hashlib.sha256()
    for file in filter(Path.is_file, files):
        try:
            digest.update(hashlib.sha256(read_plain(file)).digest())
        except OSError as error:
            raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def with_auxiliary(panel: Panel, request: FitRequest) -> Panel:
    """Return a panel with the other series, or the learned weights, that a request names.

    Raises DataError if they cannot be read, and UsageError if the fit cannot use them.
    """
    if request.learn_from is None:
        return panel
    path = from_text(request.learn_from)
    where = f"--learn-from {printable(path, lines=False)}"
    if not is_run(path):
        other = load_panel(f"files:{path}")
    else:
        run = OpenRun.of(path)
        other = run.model(run.ids[:1]).common_weights
        if other is None:
            raise UsageError(
                f"{where}: this run has no common model of volatility; expected a fit of at least "
                "ten prices with two years of rows, or a file with such prices"
            )
    try:
        return panel.with_auxiliary(other)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
