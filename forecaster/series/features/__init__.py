"""What networks see and learn of a series: transforms, anchors, features of prices and market.

Knows panels. Nothing here looks ahead: what is used at a step was known at it.
"""
