"""Series that were left out, in few lines: those with one reason together, and what to do."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from forecaster.errors import DataError, NoSeries, printable

if TYPE_CHECKING:
    from forecaster.config import Config

_ROWS = re.compile(r"(?P<rows>\d+) rows; (?P<needed>\d+) needed \((?P<why>.*)\)")
_APART = 3  # series that still have a line each
_NAMED = 8


class _Kind(NamedTuple):
    """What reasons have in common: a text, or that rows are too few."""

    reason: str
    needed: int = 0


def lines_of(skipped: Mapping[str, str], config: "Config | None" = None) -> list[str]:
    """A line per series, or per reason where it is that of many.

    ``config``: of the fit, for the option that would admit series that are too short.
    """
    kinds: dict[_Kind, dict[str, int]] = {}
    for name, reason in skipped.items():
        short = _ROWS.fullmatch(reason)
        kind = _Kind(short["why"], int(short["needed"])) if short else _Kind(reason)
        kinds.setdefault(kind, {})[name] = int(short["rows"]) if short else 0
    lines: list[str] = []
    for kind, rows in kinds.items():
        apart = [{name: count} for name, count in rows.items()]
        for group in apart if len(rows) <= _APART else [rows]:
            lines.append(_line(kind, group, config))
    return lines


@contextlib.contextmanager
def advised(config: "Config") -> Iterator[None]:
    """Where no series is left of those a fit was asked for, say what would admit them."""
    try:
        yield
    except NoSeries as error:
        # Where fewer cutoffs leave enough rows, a shorter horizon is not what was asked for.
        lines = lines_of(error.skipped, None if error.advice else config)
        told = "".join(f"\n  {line}" for line in [*lines, error.advice] if line)
        raise DataError(f"no series can be used:{told}") from error


def _line(kind: _Kind, rows: Mapping[str, int], config: "Config | None") -> str:
    """``rows``: by series; 0 where they are not too few."""
    few, many = min(rows.values()), max(rows.values())
    text = kind.reason
    if kind.needed:
        counts = f"{few}" if few == many else f"{few} to {many}"
        text = f"{counts} rows; {kind.needed} needed ({kind.reason})"
        if config is not None and (advice := _advice(config, sorted(rows.values()), kind.needed)):
            text += f"; {advice}"
    names = [printable(name, lines=False) for name in rows]
    if len(names) == 1:
        return f"{names[0]}: {text}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} series: {text}: {', '.join(names[:_NAMED])}{more}"


def _advice(config: "Config", rows: list[int], needed: int) -> str | None:
    """The option that would admit all these series, or else as many as possible."""
    beside = needed - config.rows_to_fit  # which a season needs
    for count in sorted(set(rows)):
        if option := config.option_for(count - beside):
            admitted = sum(other >= count for other in rows)
            every = "it" if len(rows) == 1 else "them"
            which = every if admitted == len(rows) else f"{admitted} of them"
            return f"{option} would admit {which}"
    return None
