"""Frequencies in words."""

from forecaster.series.calendar.frequency import Frequency

_UNITS = {
    "D": "days", "B": "weekdays", "h": "hours", "SMS": "half months", "SME": "half months",
}  # fmt: skip
_MONTHS = {1: "months", 3: "quarters", 12: "years"}
_SECONDS = {86_400: "days", 3_600: "hours", 60: "minutes", 1: "seconds"}


def in_words(frequency: Frequency) -> str:
    """Return a frequency in words, such as "weekdays" or "every 5 minutes"."""
    alias, step = frequency.alias, frequency.step
    if frequency.nyse:
        return "sessions of the New York Stock Exchange"
    if frequency.open and alias == "D":
        return f"{len(frequency.open)} days of the week"
    if alias == "step":
        return "whole numbers" if step == 1 else f"whole numbers, {step} apart"
    if alias == "months":
        return "months" if step == 1 else f"every {step} months"
    if months := frequency.months:
        return _MONTHS.get(months, f"every {months} months")
    seconds = alias.removesuffix("s")
    if seconds.isdigit():
        unit = next(unit for unit in _SECONDS if int(seconds) % unit == 0)
        count = int(seconds) // unit
        return _SECONDS[unit] if count == 1 else f"every {count} {_SECONDS[unit]}"
    count, base = frequency.base
    if base == "W":
        return "weeks" if count == 1 else f"every {count} weeks"
    return _UNITS.get(base, alias) if count == 1 else alias
