"""Make members of networks written with Flax, Linen, Equinox or Keras.

Knows those libraries and the recurrences. Must not know how members train.
"""
