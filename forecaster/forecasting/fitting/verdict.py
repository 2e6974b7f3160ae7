"""Say whether the forecasts of a fit are worth having."""

import pandas as pd

_WORSE = 1.02  # multiple of a simple forecast's error above which a fit gets a warning


def worse_than_simple(report: pd.DataFrame) -> str | None:
    """Return a warning if forecasts are worse than a simple one, in the median over series.

    ``report``: of a model, with the errors on the rows held back relative to simple forecasts
    """
    rivals = {
        "'unchanged'": report["mae_relative_to_naive"],
        "the season before": report["mae_relative_to_seasonal_naive"],
    }
    medians = {name: ratio.median() for name, ratio in rivals.items() if ratio.notna().any()}
    if not medians:
        return None
    name = max(medians, key=medians.__getitem__)
    ratio = medians[name]
    if not ratio > _WORSE:
        return None
    return (
        f"These forecasts are {ratio - 1:.0%} worse than {name}: use that instead, or try another "
        "--transform (difference, seasonal; in Python transform=) or --season, more rows, or a "
        "shorter --horizon."
    )
