"""A model on disk: its fields, its arrays, and checks of files that somebody else made.

Knows one model and its two files. Must not know homes or runs.
"""
