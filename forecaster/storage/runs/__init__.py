"""The runs under a home: their folders, what was asked, the prices that they learned from.

Knows saved models. Must not know of work that is still under way.
"""
