"""The cutoffs of an evaluation, and the forecasts of the past made at them.

Knows panels and models. Must not know scores or baselines.
"""
