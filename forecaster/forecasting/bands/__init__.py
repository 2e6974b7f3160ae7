"""Predictive distributions and their calibration: heads, conformal bands, mixtures.

Knows arrays of outcomes and forecasts. Must not know networks or how they are trained.
"""
