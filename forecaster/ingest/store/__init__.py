"""Keep series on disk: a Parquet file for each, and an index of the files.

Knows the file system. Must not know where series come from.
"""
