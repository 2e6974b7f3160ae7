"""Train ONE member: initialise, step, epoch, stop (loop.py); losses, metrics, optimisers, examples.

Knows one member and its data. Must not know how many members run at once, on which devices, or
any files.
"""
