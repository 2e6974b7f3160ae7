"""Many series side by side: a long frame as stacked arrays with a mask, and back.

Knows values, times and covariates. Must not know the features that are made of them.
"""
