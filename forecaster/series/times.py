"""Times of series: what a caller may write for one, and how one is shown."""

import datetime
from typing import TypeAlias, cast

import numpy as np
import pandas as pd

Date: TypeAlias = str | datetime.date | np.datetime64
"""A date as a caller may write it; ``datetime`` and ``pandas.Timestamp`` are dates too."""

Time: TypeAlias = Date | int | np.integer
"""A date, or a whole number where series count in them."""


def show_time(time: object) -> str:
    """A time as a person writes it: a date without midnight, or a number.

    ``time``: a :data:`Time`, or whatever else pandas takes for a date.
    """
    if isinstance(time, (int, np.integer)):
        return str(int(cast(int, time)))
    return str(pd.Timestamp(cast(Date, time))).removesuffix(" 00:00:00")
