"""Store the progress of fits and evaluations, so that interrupted ones can be resumed.

Knows runs and models on disk. Must not know how training works.
"""
