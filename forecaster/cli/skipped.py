"""Show series with a reason, such as skipped ones, in few lines."""

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from forecaster.errors import DataError, NoSeries, printable
from forecaster.skipped import Kind, Skipped

if TYPE_CHECKING:
    from forecaster.config import Config

_APART = 3  # at most this many series whose reasons differ in numbers have a line each
_NAMED = 8  # series named in a line
_NUMBER = re.compile(r"(?<![\w.])-?\d(?:[\d.,:-]*\d)?")  # or a date, or a time


def lines_of(reasons: Mapping[str, object], config: "Config | None" = None) -> list[str]:
    """Return a line per series, or per reason where those of many differ in numbers alone.

    ``config``: of the fit, to name the option that would admit series that are too short.
    """
    alike: dict[tuple[str, ...], dict[str, object]] = {}
    for name, reason in reasons.items():
        alike.setdefault(tuple(_NUMBER.split(str(reason))), {})[name] = reason
    lines: list[str] = []
    for some in alike.values():
        same = len(set(map(str, some.values()))) == 1
        parts = [some] if same or len(some) > _APART else [{n: why} for n, why in some.items()]
        lines += [_line(part, config) for part in parts]
    return lines


def _line(reasons: Mapping[str, object], config: "Config | None") -> str:
    """Return one line for series whose reasons differ in numbers alone."""
    text = _joined([str(reason) for reason in reasons.values()])
    short = [why for why in reasons.values() if getattr(why, "kind", None) is Kind.TOO_SHORT]
    if config is not None and short and (advice := _advice(config, cast(list[Skipped], short))):
        text += f"; {advice}"
    first = [printable(name, lines=False) for name in itertools.islice(reasons, _NAMED)]
    more = f" and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
    names = f"{', '.join(first)}{more}"
    few = len(reasons) <= _APART
    return f"{names}: {text}" if few else f"{len(reasons)} series: {text}: {names}"


def _joined(texts: Sequence[str]) -> str:
    """Return one text for several that differ in numbers alone: each from its least to its most."""
    spans = map(_span, zip(*map(_NUMBER.findall, texts), strict=True))
    return _NUMBER.sub(lambda _: next(spans), texts[0])


def _span(numbers: Sequence[str]) -> str:
    try:
        ordered = sorted(numbers, key=lambda text: float(text.replace(",", "")))
    except ValueError:  # dates
        ordered = sorted(numbers)
    return ordered[0] if len(set(numbers)) == 1 else f"{ordered[0]} to {ordered[-1]}"


@contextlib.contextmanager
def advised(config: "Config | None") -> Iterator[None]:
    """Turn NoSeries into an error that names the options which would admit the series."""
    try:
        yield
    except NoSeries as error:
        # Advice of the error, to ask for fewer cutoffs, comes in place of a shorter horizon.
        lines = lines_of(error.skipped, None if error.advice else config)
        advice = "".join(f"\n  {line}" for line in [*lines, error.advice] if line)
        raise DataError(f"no series can be used:{advice}") from error


def _advice(config: "Config", short: Sequence[Skipped]) -> str | None:
    """Return the option that would admit all of these series, or else most of them."""
    rows = [reason.rows or 0 for reason in short]
    season = (short[0].needed or 0) - config.rows_to_fit  # rows that a season needs on top
    for count in sorted(set(rows)):
        if option := config.option_for(count - season):
            admitted = sum(other >= count for other in rows)
            every = "it" if len(rows) == 1 else "them"
            which = every if admitted == len(rows) else f"{admitted} of them"
            return f"{option} would admit {which}"
    return None
