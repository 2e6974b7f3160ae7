"""What is known of series in advance: effects of the calendar, and responses to covariates.

Knows the properties of each series and the classical models. Must not know transforms or networks.
"""
