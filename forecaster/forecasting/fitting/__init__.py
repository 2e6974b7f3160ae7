"""Train the networks of a panel, and calibrate their bands on the rows that were held back.

Knows the engine, networks, bands and predicting. No other room of forecasting knows of it.
"""
