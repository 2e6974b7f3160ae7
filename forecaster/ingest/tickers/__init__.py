"""Read lists of tickers: universes, groups, and who was a member when.

Knows names and dates. Must not know prices.
"""
