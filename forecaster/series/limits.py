"""Name limits that settings and fits are checked against before any series is looked at."""

from forecaster.classical import MODELS

CLASSICAL = tuple(name for name, model in MODELS.items() if model.may_stand_alone)
"""The classical models that may forecast alone."""
MOST_SEASONS, LONGEST_SEASON = 10, 1_000_000  # seasons of a series, and steps in one
ROWS_TO_BLEND = 4
"""Rows that a blend needs; of fewer the last value is forecast."""
