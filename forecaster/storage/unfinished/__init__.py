"""Keep what an interrupted fit or evaluation has done, so that it can be resumed.

Knows runs and models on disk. Must not know how training works.
"""
