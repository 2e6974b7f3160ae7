"""Turn networks written with Flax, Linen or Equinox into pure functions of one member.

Knows those libraries and the recurrences. Must not know how members train.
"""
