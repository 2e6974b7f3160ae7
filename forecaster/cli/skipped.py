"""Show series with a reason, such as skipped ones, in few lines."""

import contextlib
from collections.abc import Iterator, Mapping

from forecaster.errors import DataError, NoSeries, listed

_LINES, _NAMED = 8, 8  # reasons with a line each, and series that are named in it


def lines_of(reasons: Mapping[str, object]) -> list[str]:
    """Return a line for each reason, with the series that have it."""
    alike: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        alike.setdefault(str(reason), []).append(name)
    lines: list[str] = []
    for reason, names in list(alike.items())[:_LINES]:
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        lines.append(f"{listed(names[:_NAMED])}{more}: {reason}")
    if rest := sum(map(len, list(alike.values())[_LINES:])):
        lines.append(f"and {rest:,} more series")
    return lines


@contextlib.contextmanager
def in_lines() -> Iterator[None]:
    """Turn NoSeries into an error with a line for each reason."""
    try:
        yield
    except NoSeries as error:
        lines = [*lines_of(error.skipped), *([error.advice] if error.advice else [])]
        raise DataError("\n  ".join(["no series can be used:", *lines])) from error
