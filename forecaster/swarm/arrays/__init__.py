"""Trees of arrays with a member axis: data that members share or own, shapes and variables.

Knows arrays alone: no devices, no training.
"""
