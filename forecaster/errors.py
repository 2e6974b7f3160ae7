"""Errors that a user can act on.

Each says what is wrong and where, what was expected, what came instead, and what to do next.
"""

from collections.abc import Mapping


class ForecasterError(Exception):
    """Base of all errors; ``exit_code`` is that of the command line."""

    exit_code = 1


class ForecasterWarning(UserWarning):
    """All warnings of this package but the engine's, which has its own."""


class UsageError(ForecasterError):
    """A bad option, or a ticker file that is missing, empty or unreadable."""

    exit_code = 2


class DataError(ForecasterError):
    """Series that cannot be used."""


class WriteError(ForecasterError):
    """A file or folder cannot be written."""


class StoreError(ForecasterError):
    """The price store cannot be read."""


class ModelError(ForecasterError):
    """No model, or one that cannot be read or does not fit the data."""


class SourceError(ForecasterError):
    """A source gave no prices. ``final``: asking again will not help."""

    final = False


class NotFound(SourceError):
    """The source does not know the ticker, or has nothing in that span."""


class RateLimited(SourceError):
    """The source refuses more requests for now.

    ``retry_after``: seconds to wait, as the source says.
    """

    def __init__(self, message: str, retry_after: float | None = None, *, final: bool = False):
        super().__init__(message)
        self.retry_after = retry_after
        self.final = final


class ServerError(SourceError):
    """The source is out of order, or did not answer in time."""


class BadAnswer(SourceError):
    """The source answered with something other than a series."""


class NoNetwork(SourceError):
    """The source cannot be reached."""


class Interrupted(SourceError):
    """Work was stopped while it waited."""


def name_reasons(skipped: Mapping[str, str], most: int = 5) -> str:
    """Series and reasons as indented lines, the first few."""
    lines = [f"  {name}: {reason}" for name, reason in list(skipped.items())[:most]]
    if len(skipped) > most:
        lines.append(f"  ... and {len(skipped) - most} more")
    return "\n".join(lines)
