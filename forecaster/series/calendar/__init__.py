"""Times: frequencies, sessions of exchanges, hours, holidays, seasons.

Knows times alone, no values.
"""
