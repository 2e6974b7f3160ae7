"""Name the limits of a season, which settings check before any data is read."""

MOST_SEASONS, LONGEST_SEASON = 10, 1_000_000  # seasons of a series, and steps in one
