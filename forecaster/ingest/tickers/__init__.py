"""Read lists of tickers: universes, groups, and membership over time.

Knows names and dates. Must not know prices.
"""
