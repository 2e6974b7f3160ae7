"""Forecast with a fitted model: match its series, run its networks, draw joint paths.

Knows models, networks and bands. Must not know how the networks were trained.
"""
