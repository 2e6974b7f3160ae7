"""Daily prices from Yahoo Finance through yfinance: source, transport and limiter.

Not an official interface, and Yahoo's terms allow personal use only.
"""

from forecaster.ingest.yahoo.source import Yahoo as Yahoo
