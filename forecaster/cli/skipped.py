"""Show the skipped series in few lines, and the option that would admit them."""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from forecaster.errors import DataError, NoSeries, printable
from forecaster.skipped import Kind, Skipped

if TYPE_CHECKING:
    from forecaster.config import Config

_APART = 3  # at most this many series with the same reason have a line each
_NAMED = 8  # series named in a line
_NUMBER = re.compile(r"\d[\d.,]*")


def lines_of(skipped: Mapping[str, Skipped], config: "Config | None" = None) -> list[str]:
    """Return a line per series, or per reason where many series have the same one.

    ``config``: of the fit, to name the option that would admit series that are too short.
    """
    alike: dict[Skipped, dict[str, Skipped]] = {}
    for name, reason in skipped.items():
        key = _without_rows(reason) if reason.kind is Kind.TOO_SHORT else reason
        alike.setdefault(key, {})[name] = reason
    lines: list[str] = []
    for reasons in alike.values():
        if len(reasons) > _APART:
            lines.append(_line(reasons, config))
        else:
            lines += [_line({name: reason}, config) for name, reason in reasons.items()]
    return lines


def lines_of_failures(failed: Mapping[str, str]) -> list[str]:
    """Return a line per series, or per reason where those of many differ in numbers alone."""
    alike: dict[str, dict[str, str]] = {}
    for name, reason in failed.items():
        alike.setdefault(_NUMBER.sub("#", reason), {})[name] = reason
    lines: list[str] = []
    for reasons in alike.values():
        if len(reasons) > _APART:
            text = next(iter(reasons.values()))
            such = "" if len(set(reasons.values())) == 1 else "such as "
            lines.append(f"{len(reasons)} series: {such}{text}: {_listed(reasons)}")
        else:
            lines += [f"{printable(n, lines=False)}: {reason}" for n, reason in reasons.items()]
    return lines


def _listed(names: Collection[str]) -> str:
    """Return the first names of several, and how many more there are."""
    first = [printable(name, lines=False) for name in itertools.islice(names, _NAMED)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(first)}{more}"


def _without_rows(reason: Skipped) -> Skipped:
    return dataclasses.replace(reason, rows=0)


@contextlib.contextmanager
def advised(config: "Config") -> Iterator[None]:
    """Turn NoSeries into an error that names the options which would admit the series."""
    try:
        yield
    except NoSeries as error:
        # Advice of the error, to ask for fewer cutoffs, comes in place of a shorter horizon.
        lines = lines_of(error.skipped, None if error.advice else config)
        advice = "".join(f"\n  {line}" for line in [*lines, error.advice] if line)
        raise DataError(f"no series can be used:{advice}") from error


def _line(reasons: Mapping[str, Skipped], config: "Config | None") -> str:
    """Return one line for series with the same reason; only their numbers of rows may differ."""
    reason = next(iter(reasons.values()))
    text = str(reason)
    if reason.kind is Kind.TOO_SHORT:
        rows = sorted(r.rows for r in reasons.values() if r.rows is not None)
        text = reason.sentence(f"{rows[0]}" if rows[0] == rows[-1] else f"{rows[0]} to {rows[-1]}")
        if config is not None and (advice := _advice(config, rows, reason.needed or 0)):
            text += f"; {advice}"
    if len(reasons) == 1:
        return f"{_listed(reasons)}: {text}"
    return f"{len(reasons)} series: {text}: {_listed(reasons)}"


def _advice(config: "Config", rows: list[int], needed: int) -> str | None:
    """Return the option that would admit all series with these rows, or else most of them."""
    season = needed - config.rows_to_fit  # rows that a season needs on top
    for count in sorted(set(rows)):
        if option := config.option_for(count - season):
            admitted = sum(other >= count for other in rows)
            every = "it" if len(rows) == 1 else "them"
            which = every if admitted == len(rows) else f"{admitted} of them"
            return f"{option} would admit {which}"
    return None
