"""Measure forecasts: metrics, scores of series, tests of significance, tables of them.

Knows frames of forecasts and outcomes. Must not know who made the forecasts.
"""
