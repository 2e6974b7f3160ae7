"""Predictive distributions and their calibration: heads, Student-t distributions, calibrated bands.

Knows arrays of outcomes and forecasts. Must not know networks or how they are trained.
"""
