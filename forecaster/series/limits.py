"""Name limits that settings and fits are checked against before any series is looked at."""

from typing import Literal

CLASSICAL: tuple[Literal["ets", "theta", "ces"], ...] = ("ets", "theta", "ces")
"""The classical models, any of which may forecast alone."""
MOST_SEASONS, LONGEST_SEASON = 10, 1_000_000  # seasons of a series, and steps in one
ROWS_TO_BLEND = 4
"""Rows that a blend needs; of fewer the last value is forecast."""
