"""Anniversaries: the right rows, of dates only, and none of the future."""

import numpy as np
import pandas as pd

from forecaster.series.price_features import active_days

DAYS = pd.bdate_range("2020-01-01", "2022-12-30")
DAYS = DAYS[~DAYS.isin(pd.to_datetime(["2020-12-25", "2021-07-05", "2022-01-17", "2022-07-04"]))]
TIMES = DAYS.to_numpy().astype("datetime64[s]")
ROWS = len(TIMES)


def active(values: np.ndarray, horizon: int = 5, times: np.ndarray = TIMES) -> list[np.ndarray]:
    values = np.atleast_2d(values)
    return active_days(values, times, np.tile(np.arange(ROWS), (len(values), 1)), horizon)


def test_a_day_is_seen_again_after_each_of_four_quarters_and_at_no_other_time():
    tomorrow, _ = active(np.where(DAYS.isin(pd.to_datetime(["2021-01-13"])), 1.0, 0.0))
    seen = pd.Series(tomorrow[0], DAYS)["2021-01-13":]  # a year of rows lies before
    again = pd.to_datetime(["2021-04-14", "2021-07-14", "2021-10-13", "2022-01-12"])
    day = pd.offsets.BDay(1)
    assert (seen[again - day] == 1 / 4).all()  # one of the four anniversaries had it
    assert (seen[again - 2 * day] == 1 / 8).all() and (seen[again] == 1 / 8).all()
    assert (seen != 0).sum() == 3 * 4
