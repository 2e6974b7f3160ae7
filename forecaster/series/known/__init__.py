"""What is known in advance: covariates as features, and the effects of dates, holidays and prices.

Knows panels. Must not know the forecasts that effects are added to.
"""
