"""Errors that a user can act on.

Each says what is wrong and where, what was expected, what came instead, and what to do next.
"""

from collections.abc import Iterable, Mapping

from forecaster.skipped import Skipped

_MOST_SHOWN = 300  # characters of a list that comes from outside


class ForecasterError(Exception):
    """Base of all errors; ``exit_code`` is that of the command line.

    Names of files, columns and series are in their messages, so these are shown :func:`printable`.
    """

    exit_code = 1

    def __str__(self) -> str:
        return printable(super().__str__())


class ForecasterWarning(UserWarning):
    """All warnings of this package but the engine's, which has its own."""


class UsageError(ForecasterError):
    """A bad option, or a ticker file that is missing, empty or unreadable."""

    exit_code = 2


class DataError(ForecasterError):
    """Series that cannot be used."""


class NoSeries(DataError):
    """No series is left.

    - ``skipped``: the reasons, by series
    - ``advice``: what else to do
    - ``lost``: those of them that no worker could train
    """

    def __init__(self, skipped: Mapping[str, Skipped], advice: str = "", lost: Iterable[str] = ()):
        super().__init__(
            f"no series can be used:\n{name_reasons(skipped)}" + (f"\n{advice}" if advice else "")
        )
        self.skipped = dict(skipped)
        self.advice = advice
        self.lost = tuple(lost)


class WriteError(ForecasterError):
    """A file or folder cannot be written."""


class StoreError(ForecasterError):
    """The price store cannot be read."""


class ModelError(ForecasterError):
    """No model, or one that cannot be read or does not fit the data."""


class ClusterError(ForecasterError):
    """A cluster cannot be reached, or has nobody who could do the work."""


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


def printable(text: object, *, lines: bool = True) -> str:
    r"""A text that comes from outside, safe to show on a terminal.

    What controls a terminal, turns the direction of text or cannot be seen is written as in Python
    (``\x1b``, ``\u202e``). ``lines``: line breaks are kept; without, as in a name, they are not.
    """
    text = str(text)
    if text.isprintable():
        return text
    kept = "\n" if lines else ""
    return "".join(
        char if char.isprintable() or char in kept else char.encode("unicode_escape").decode()
        for char in text
    )


def listed(names: Iterable[object]) -> str:
    """Names that come from outside in one line, a very long list cut short."""
    line = printable(", ".join(map(str, names)), lines=False)
    return line if len(line) <= _MOST_SHOWN else f"{line[: _MOST_SHOWN - 3]}..."


def name_reasons(skipped: Mapping[str, object], most: int = 5) -> str:
    """Series and reasons as indented lines, the first few."""
    lines = [
        f"  {printable(name, lines=False)}: {reason}"
        for name, reason in list(skipped.items())[:most]
    ]
    if len(skipped) > most:
        lines.append(f"  ... and {len(skipped) - most} more")
    return "\n".join(lines)
