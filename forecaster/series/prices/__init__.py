"""Features of prices: their changes, ranges and volumes, events, and the market beside them.

Knows panels. Must not know transforms or other series than prices.
"""
