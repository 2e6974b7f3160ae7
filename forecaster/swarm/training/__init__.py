"""Train ONE member: initialise, step, epoch, stop (loop.py); losses, metrics, optimisers, examples.

Knows one member and its data. Must not know how many are run at once, on which devices, or files.
"""
