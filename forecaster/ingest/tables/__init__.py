"""Read the tables of others: formats, columns, numbers and dates, as one long frame.

Knows the files and frames it is given. Must not know of sources or of the store.
"""
