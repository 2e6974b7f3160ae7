"""Read a user's table, in any accepted format, as one long frame.

Knows files and frames. Must not know of sources or of the store.
"""
