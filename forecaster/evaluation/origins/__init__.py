"""The cutoffs of an evaluation, and the forecasts made from them.

Knows panels and models. Must not know scores or baselines.
"""
