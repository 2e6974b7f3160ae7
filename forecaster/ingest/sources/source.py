"""The interface of a source of series, and the values it yields."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import pandas as pd

from forecaster.series import Date


class Fetched(NamedTuple):
    """One series, or the reason why there is none.

    - ``frame``: ``unique_id, ds, channels...``, sorted by ``ds``; None: see the next three fields
    - ``reason``: why the series could not be fetched
    - ``unchanged``: the stored series is up to date
    - ``suspect``: the source contradicts the stored series, which is kept
    - ``kept``: the times of the frame's rows that come from the store; None: of none
    """

    unique_id: str
    frame: pd.DataFrame | None
    reason: str | None = None
    unchanged: bool = False
    suspect: bool = False
    kept: pd.Series | None = None


class Stored(NamedTuple):
    """A stored series.

    ``asked_from``: the earliest date that was requested so far; None: all history.
    """

    frame: pd.DataFrame
    asked_from: str | None


Known: TypeAlias = Callable[[str], Stored | None]
"""Returns the stored series of a ticker, or None."""


class Source(Protocol):
    """A source of series, each as a long frame of its own."""

    name: str

    def tickers(self) -> list[str]:
        """Return all series the source holds. Raises UsageError if it has no list of them."""
        ...

    def fetch(
        self, tickers: Sequence[str], start: Date | None = None, known: Known | None = None
    ) -> Iterator[Fetched]:
        """Yield each series once, in order of arrival: all of it, or its rows from ``start`` on.

        ``known(ticker)``: the stored series, for sources that fetch only missing rows. A series
        that cannot be fetched is yielded with the reason. Raises an error only if the source as a
        whole does not work.
        """
        ...

    def fingerprint(self) -> str | None:
        """Return a hash that changes with the source's content; None if only fetching shows it."""
        ...
