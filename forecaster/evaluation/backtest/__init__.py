"""Forecast the past from many cutoffs, beside baselines, and summarise the errors.

Knows scores, baselines and cutoffs. No other room of evaluation knows of it.
"""
