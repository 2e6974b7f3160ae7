"""Spread members over devices and compile the programs that run on them.

Knows JAX, arrays and the compiled kernels. Must not know what a member learns.
"""
