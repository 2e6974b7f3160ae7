"""The combination of simple forecasts that networks start from, and what series share in it.

Knows the properties of each series and the classical models. Must not know transforms or networks.
"""
