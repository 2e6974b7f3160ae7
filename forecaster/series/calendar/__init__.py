"""Times: frequencies, sessions of exchanges, hours, holidays, seasons.

Knows times. Must not know panels, channels or covariates.
"""
