"""Errors that a user can act on. Each says what, where, expected, got and what to do next."""

from collections.abc import Mapping


class ForecasterError(Exception):
    """Base of all; ``exit_code`` is that of the command line."""

    exit_code = 1


class UsageError(ForecasterError):
    """A bad option, or a ticker file that is missing, empty or unreadable."""

    exit_code = 2


class DataError(ForecasterError):
    """Series that cannot be used."""


class StoreError(ForecasterError):
    """The price store cannot be read or written."""


class ModelError(ForecasterError):
    """No model, or one that cannot be read or does not fit the data."""


class SourceError(ForecasterError):
    """A source of prices did not give any."""


def name_reasons(skipped: Mapping[str, str], most: int = 5) -> str:
    """Series and reasons as indented lines, the first few."""
    lines = [f"  {name}: {reason}" for name, reason in list(skipped.items())[:most]]
    if len(skipped) > most:
        lines.append(f"  ... and {len(skipped) - most} more")
    return "\n".join(lines)
