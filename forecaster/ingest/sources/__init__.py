"""Fetch series from files, from Yahoo or from a simulated market.

Knows tables and the store. Must not know what the series are used for.
"""
