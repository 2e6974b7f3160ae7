"""Errors that a user can act on.

Each message says what is wrong and where, what was expected, what came instead, and what to do.
"""

import importlib.util
import operator
import warnings
from collections.abc import Collection, Hashable, Iterable, Mapping
from types import UnionType
from typing import Any, SupportsIndex, cast

from forecaster.errors.skipped import Skipped

_MOST_SHOWN = 300  # characters in a list of names
_FEW = 8  # reasons that are named, and series that are named with each
_MOST_QUOTED = 80  # characters of a wrong argument
_SEEDS = -(2**31), 2**32 - 1  # a random key is made of 32 bits of it
DISTRIBUTION = "forecaster-swarm"
"""This project's name on the Python Package Index, where ``forecaster`` is another project."""


class ForecasterError(Exception):
    """Base of all errors; ``exit_code`` is the exit code of the command line.

    Messages quote names of files, columns and series, so they are shown through :func:`printable`.
    """

    exit_code = 1

    def __str__(self) -> str:
        return printable(super().__str__())


class ForecasterWarning(UserWarning):
    """Base of all warnings, except those of :mod:`forecaster.swarm`, which has its own."""


class UsageError(ForecasterError):
    """A bad option, or a ticker file that is missing, empty or unreadable."""

    exit_code = 2


class DataError(ForecasterError):
    """Series or tables that cannot be used."""


class NoSeries(DataError):
    """No series can be used.

    - ``skipped``: the reason for each series
    - ``advice``: what else the user can do
    - ``lost``: the skipped series whose workers on a cluster were lost
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
    """A model is missing, cannot be read, or does not fit the data."""


class DamagedModel(ModelError):
    """A file of a saved model cannot be read, or its content is not what was saved."""


class ClusterError(ForecasterError):
    """A cluster cannot be reached, or has no worker that can do the work."""


class SourceError(ForecasterError):
    """A source gave no prices. ``final``: whether asking again is pointless."""

    final = False


class NotFound(SourceError):
    """The source does not know the ticker, or has no prices in the requested span."""


class RateLimited(SourceError):
    """The source refuses more requests for now.

    ``retry_after``: how many seconds the source asks to wait; None if it does not say.
    """

    def __init__(self, message: str, retry_after: float | None = None, *, final: bool = False):
        super().__init__(message)
        self.retry_after = retry_after
        self.final = final


class ServerError(SourceError):
    """The source has a fault, or did not answer in time."""


class BadAnswer(SourceError):
    """The source's answer is not a series."""


class NoNetwork(SourceError):
    """The source cannot be reached."""


class Interrupted(SourceError):
    """A request was stopped while it waited for its turn."""


def check_type(name: str, value: object, kinds: type | UnionType, expected: str) -> None:
    """Raise UsageError for an argument of another type; ``expected``: the right one, in words."""
    if not isinstance(value, kinds):
        raise wrong_argument(name, value, expected)


def check_whole(name: str, value: object, least: int | None = None) -> None:
    """Raise UsageError for an argument that is no whole number, or less than the ``least``."""
    expected = "a whole number" if least is None else f"a whole number of {least} or more"
    if isinstance(value, bool) or not isinstance(value, Hashable):  # an array
        raise wrong_argument(name, value, expected)
    try:
        number = operator.index(cast(SupportsIndex, value))
    except TypeError as error:
        raise wrong_argument(name, value, expected) from error
    if least is not None and number < least:
        raise wrong_argument(name, value, expected)


def check_seed(seed: Any) -> None:
    """Raise UsageError for a seed of networks that is no whole number of 32 bits."""
    check_whole("seed", seed)
    least, most = _SEEDS
    if not least <= operator.index(seed) <= most:
        raise wrong_argument("seed", seed, f"a whole number of {least} to {most}")


def check_flag(name: str, value: object) -> None:
    """Raise UsageError for an argument that is neither True nor False."""
    if type(value).__name__ not in ("bool", "bool_"):  # NumPy's is called either, by its version
        raise wrong_argument(name, value, "True or False")


def check_names(name: str, value: object, expected: str = "a list of names") -> None:
    """Raise UsageError for an argument that is not a list of texts, such as a single text."""
    if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
        raise wrong_argument(name, value, expected)
    if getattr(value, "ndim", 1) != 1:  # an array or a frame
        raise wrong_argument(name, value, expected)
    if not all(isinstance(each, str) for each in value):
        raise wrong_argument(name, value, expected)


def check_callable(name: str, value: object) -> None:
    """Raise UsageError for an argument that cannot be called, unless it is None."""
    if value is not None and not callable(value):
        raise wrong_argument(name, value, "a function or None")


def wrong_argument(name: str, value: object, expected: str) -> UsageError:
    """Return the error for an argument that is not what was expected."""
    try:
        got = " ".join(repr(value).split())
    except ValueError:  # Python refuses to write numbers of more digits
        got = "a number of more than 4,300 digits"
    got = got if len(got) <= _MOST_QUOTED else f"{got[:_MOST_QUOTED]}... ({type(value).__name__})"
    return UsageError(f"{name}: expected {expected}; got {got}")


def quoted(text: object) -> str:
    """Return text in quotes, cut short if it is long."""
    text = str(text)
    return repr(text) if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]!r}..."


def printable(text: object, *, lines: bool = True) -> str:
    r"""Return text from a file or user that is safe to show on a terminal.

    Characters that control a terminal, turn the direction of text or are invisible are written as
    Python escapes (``\x1b``, ``\u202e``). ``lines``: whether line breaks are kept; False for names.
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
    """Return printable names in one line, separated by commas; cut a long list short."""
    line = printable(", ".join(map(str, names)), lines=False)
    return line if len(line) <= _MOST_SHOWN else f"{line[: _MOST_SHOWN - 3]}..."


def warn(message: str) -> None:
    """Warn of something that the caller of the calling function may have to look at."""
    warnings.warn(message, ForecasterWarning, stacklevel=3)


def warn_of_skipped(skipped: Mapping[str, object]) -> None:
    """Warn of skipped series by name with their reasons, if there are any."""
    if skipped:
        warnings.warn(
            f"{len(skipped)} series skipped:\n{name_reasons(skipped)}",
            ForecasterWarning,
            stacklevel=4,  # this function, the one that calls it, a public one, the user's line
        )


def name_reasons(skipped: Mapping[str, object]) -> str:
    """Return an indented line for each reason, with the series that have it; only the first few."""
    alike: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        alike.setdefault(str(reason), []).append(name)
    lines = []
    for reason, names in list(alike.items())[:_FEW]:
        more = f" and {len(names) - _FEW:,} more" if len(names) > _FEW else ""
        lines.append(f"  {listed(names[:_FEW])}{more}: {reason}")
    if rest := sum(map(len, list(alike.values())[_FEW:])):
        lines.append(f"  and {rest:,} more series")
    return "\n".join(lines)


def has(library: str) -> bool:
    """Return whether a library is installed."""
    return importlib.util.find_spec(library) is not None


def require(library: str, extra: str, what: str) -> None:
    """Raise UsageError, with the command that installs it, unless a library is installed.

    - ``library``: the name of its module
    - ``extra``: the extra of this distribution that installs the library
    - ``what``: what needs the library, as named in the message
    """
    if not has(library):
        raise UsageError(f"{what} needs {library}, which is not installed: {pip_command(extra)}")


def pip_command(extra: str) -> str:
    """Return the commands that install an extra, from the package index and in a clone."""
    return f'`pip install "{DISTRIBUTION}[{extra}]"` (in a clone: `pip install -e ".[{extra}]"`)'
