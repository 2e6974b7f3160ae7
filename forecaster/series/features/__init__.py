"""The inputs and targets of networks: transforms, anchors, features of prices and of the market.

Knows panels. Nothing here looks ahead: whatever is used at a step was known at that step.
"""
