"""What a source of series is, and what it gives."""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import NamedTuple, Protocol, TypeAlias

import pandas as pd

Date: TypeAlias = str | date
"""A day as a caller may give it: ``"2024-03-28"``, a date, a datetime or a ``pd.Timestamp``."""


class Fetched(NamedTuple):
    """One series, or the reason why there is none.

    - ``frame``: ``unique_id, ds, channels...``, sorted by ``ds``
    - ``reason``: why there is no frame
    - ``unchanged``: there is no frame because what is stored is up to date
    - ``suspect``: there is no frame because the source contradicts what is stored, which is kept
    - ``timezone``: of the exchange
    """

    unique_id: str
    frame: pd.DataFrame | None
    reason: str | None = None
    unchanged: bool = False
    suspect: bool = False
    timezone: str | None = None


class Stored(NamedTuple):
    """A series as it is in the store, and the first date that was asked for; None: all history."""

    frame: pd.DataFrame
    asked_from: str | None


Known: TypeAlias = Callable[[str], Stored | None]
"""What is stored of a ticker."""


class Source(Protocol):
    """Gives long frames of single series."""

    name: str

    def tickers(self) -> list[str]:
        """All series the source holds. Raises UsageError when it cannot say."""
        ...

    def fetch(
        self, tickers: Sequence[str], start: Date | None = None, known: Known | None = None
    ) -> Iterator[Fetched]:
        """Each series as it arrives, every ticker once, whole or from ``start`` on.

        ``known(ticker)``: what is stored, for sources that fetch only what is missing. A series
        that cannot be had comes with its reason; an error is raised only when the source as a
        whole does not work.
        """
        ...

    def fingerprint(self) -> str | None:
        """Changes when what the source holds does; None where only fetching can tell."""
        ...
