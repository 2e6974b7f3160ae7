"""Find what a user should know of series, and say it."""
