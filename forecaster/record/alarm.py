"""Hold what an alarm says. Light to import, since rows that arrive raise alarms, too."""

from typing import NamedTuple


class Alarm(NamedTuple):
    """Something to look at.

    - ``kind``: ``coverage``, ``errors``, or one of :mod:`forecaster.daily.alarms`
    - ``series``: its name, or that of a book; None: all series together, or the model
    - ``since``: the time since which it has held without a break; "" where there is none
    - ``text``: what is wrong
    """

    kind: str
    series: str | None
    since: str
    text: str
