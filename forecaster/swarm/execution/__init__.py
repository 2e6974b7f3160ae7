"""Run the training of many members: which train at once, where, and how they end.

Knows devices, checkpoints and the training of one member. Must not know `Swarm` and its like.
"""
