"""Keep series on disk: a Parquet file for each, and an index of them in SQLite.

Knows the file system. Must not know where series come from.
"""
