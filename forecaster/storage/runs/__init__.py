"""The runs under a home: their folders, requests, shards and stored prices.

Knows saved models. Must not know of unfinished work.
"""
