"""Fetch daily prices from Yahoo Finance through yfinance.

This is not an official interface, and Yahoo's terms allow personal use only.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
