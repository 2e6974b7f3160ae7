"""The swarm that users call: fit, predict, evaluate, step, tune, save.

Imports every other package of the engine; none of them imports it.
"""
