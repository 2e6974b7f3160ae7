"""Fetch series: from files, from Yahoo, from a simulated market; and update the store by them.

Knows tables and the store. Must not know what is later done with the series.
"""
