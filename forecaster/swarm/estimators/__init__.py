"""Swarms as their callers see them: fit, predict, score, step, tune, save.

Knows every other room of the engine. No other room knows of it.
"""
