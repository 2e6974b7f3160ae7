"""Distinguish forecasts made before their outcome from forecasts made after it."""

import numpy as np
import pandas as pd
from jaxtyping import Bool

from forecaster.series import NEW_YORK, exchange_of, last_closed

AFTER = "made_after"
"""The column that says whether a forecast was made after its outcome."""
_CURRENT = pd.Timedelta(days=31)  # data that end longer ago than this are a study of the past
_MARGIN = pd.Timedelta(hours=12)  # since times are local and the clock is UTC
_DAY = pd.Timedelta(days=1)
# A session's hour in UTC moves by less: clocks change by one, exchanges close three hours early.
_MOVED = pd.Timedelta(hours=4)
# Shortest month, and the most days by which months are longer.
_MONTH, _LONGER = pd.Timedelta(days=28), pd.Timedelta(days=3)


def made_after(frame: pd.DataFrame) -> Bool[np.ndarray, " row"]:
    """Return which forecasts of one source were made after their outcome.

    Such rows are not real forecasts: prices that had been rolled back were forecast again, a series
    was behind the others, or all data were late. Two things show it:

    - the record: when this forecast or an earlier one was made, most series of the same exchange
      and spacing had a row of that time or a later one
    - the clock: the time was over when the forecast was made. It only counts if the data were at
      most a month old, so that days long past can be forecast one after the other

    ``frame``: rows of the record, in the order in which they were made
    """
    late = np.zeros(len(frame), bool)
    for (exchange, step), rows in _groups(frame).items():
        part = frame.iloc[rows]
        usual = _usual_origins(part)
        latest = usual.cummax()
        late[rows] = part["ds"] <= latest
        if isinstance(step, pd.Timedelta):
            if step >= _DAY:
                late[rows] |= _of_their_session(part, usual) & (part["ds"] - latest < _MOVED)
            late[rows] |= _over(part, usual, exchange, step)
    return late


def _groups(frame: pd.DataFrame) -> dict[tuple[str, object], np.ndarray]:
    """Return the positions of the rows of each pair of exchange and spacing of times."""
    names = frame["unique_id"].astype(str)
    least = ((frame["ds"] - frame["origin"]) // frame["step"].to_numpy()).groupby(names)
    # The shortest spacing: the last day before a weekend has a longer one.
    least = least.transform("min")
    if least.dtype.kind == "m":
        least = least.mask((least > _DAY) & (least <= 4 * _DAY), _DAY)
    exchanges = names.map({name: exchange_of(name) or "" for name in names.unique()})
    found = frame.reset_index(drop=True).groupby([exchanges.to_numpy(), least.to_numpy()])
    return found.indices  # pyright: ignore[reportReturnType]


def _usual_origins(part: pd.DataFrame) -> pd.Series:
    """Return for each row the origin that most series had when the forecast was made."""
    each = part.drop_duplicates(["made", "unique_id"])[["made", "origin"]].sort_values("origin")
    usual = each.groupby("made", sort=False)["origin"].agg(lambda ends: ends.iloc[len(ends) // 2])
    return part["made"].map(usual)


def _of_their_session(part: pd.DataFrame, usual: pd.Series) -> pd.Series:
    """Return for each row whether its series mostly has the hour of the others.

    A later difference then means that the hour of the session has moved. Series that never had the
    hour of the others belong to another session.
    """
    same = (part["origin"] - usual).dt.seconds == 0  # beyond whole days
    return same.groupby(part["unique_id"], observed=True).transform("mean") > 0.5


def _over(
    part: pd.DataFrame, usual: pd.Series, exchange: str, step: pd.Timedelta
) -> Bool[np.ndarray, " row"]:
    """Return which times had passed, by the clock, when they were forecast."""
    made = part["made"].dt.tz_convert("UTC")
    clock = made.dt.tz_localize(None)
    if exchange == NEW_YORK and step == _DAY:
        closed = {now: last_closed(None, now, "America/New_York") for now in made.unique()}
        over = part["ds"].dt.normalize() <= made.map(closed)
    else:
        over = part["ds"] + (step + _LONGER if step >= _MONTH else step) + _MARGIN <= clock
    current = clock - usual <= max(_CURRENT, 3 * step)
    return (over & current).to_numpy()
