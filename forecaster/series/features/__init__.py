"""Transforms: from the rows of series to the inputs and targets of networks, and back.

Knows panels and all that features are made of. Nothing here looks ahead: whatever is used at a step
was known at that step.
"""
