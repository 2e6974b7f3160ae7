"""Say in words which special step of the calendar has an effect at a time."""

import calendar
from collections.abc import Sequence

import numpy as np

from forecaster.series.calendar.rhythms import DATES, EASTER, RHYTHMS

_GROUPS = {"holidays": "a holiday", "month": "the day of the month", "year": "the time of year"}
_AROUND_EASTER = {
    -48: "Carnival Monday", -47: "Shrove Tuesday", -46: "Ash Wednesday", -4: "the Wednesday of "
    "Holy Week", -3: "Maundy Thursday", -2: "Good Friday", -1: "Holy Saturday", 0: "Easter Sunday",
    1: "Easter Monday", 2: "the Tuesday after Easter", 39: "Ascension Day", 49: "Whit Sunday",
    50: "Whit Monday", 60: "Corpus Christi",
}  # fmt: skip
_FLOATING = (
    "Martin Luther King Day", "Presidents' Day", "Memorial Day", "Labor Day", "Thanksgiving",
    "the day after Thanksgiving", "the Monday after Thanksgiving",
)  # fmt: skip


def effect_name(effects: Sequence[float], time: np.datetime64, rhythm: str) -> str:
    """Return what a series' effect of the calendar at a time is most about; empty for none."""
    if not len(effects):
        return ""
    known = RHYTHMS[rhythm]
    (step,) = known.numbers(np.array([time])).tolist()
    each = known.special(step, step)[0] * np.asarray(effects)
    ends = np.cumsum([*known.sizes.values()])
    parts = dict(zip(known.sizes, np.split(each, ends[:-1]), strict=True))
    group = max(parts, key=lambda name: abs(parts[name].sum()))
    if not parts[group].any():
        return ""
    if group != "holidays" or rhythm not in ("D", "B"):  # of others a step may hold several
        return _GROUPS.get(group, group)
    column = int(np.argmax(np.abs(parts[group])))
    dates = [f"{date % 100} {calendar.month_name[date // 100]}" for date in DATES]
    return [*(_AROUND_EASTER[days] for days in EASTER), *dates, *_FLOATING][column]
