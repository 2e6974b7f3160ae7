"""A model on disk: its fields, its arrays, and checks of files from anywhere.

Knows one model and its two files. Must not know homes or runs.
"""
