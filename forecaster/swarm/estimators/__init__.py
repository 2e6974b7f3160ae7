"""The swarm that users call: fit, predict, evaluate, step, tune, save.

Knows all other rooms of the engine; none of them must know it.
"""
