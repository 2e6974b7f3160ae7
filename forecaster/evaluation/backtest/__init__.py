"""Forecast the past from many cutoffs and sum up how good that was, beside baselines.

Knows scores, baselines and cutoffs. No other room of evaluation knows of it.
"""
