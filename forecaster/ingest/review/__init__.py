"""Look through stored prices for rows that look wrong, and flag them.

Knows tables and the store. Must not know where prices come from.
"""
