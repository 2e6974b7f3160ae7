"""What a source of series is, and which one a name means."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import pandas as pd

from forecaster.errors import UsageError


class Fetched(NamedTuple):
    """One series, or the reason why there is none."""

    unique_id: str
    frame: pd.DataFrame | None  # unique_id, ds, channels..., sorted by ds
    reason: str | None = None


class Source(Protocol):
    """Gives long frames of single series."""

    name: str

    def tickers(self) -> list[str]:
        """All series the source holds. Raises UsageError when it cannot say."""
        ...

    def fetch(self, tickers: Sequence[str], start=None, end=None) -> Iterator[Fetched]:
        """Each series as it arrives, every ticker once; ``start`` and ``end`` are both included.

        A series that cannot be had comes with its reason; an error is raised only when the source
        as a whole does not work.
        """
        ...


def open_source(name: str, *, seed: int = 0) -> Source:
    """The source that a name means: ``yahoo``, ``simulated`` or ``files:PATH``.

    ``seed`` is that of the simulated market. Raises UsageError for any other name.
    """
    kind, _, path = name.partition(":")
    if kind == "files" and path:
        from forecaster.ingest.files import Files

        return Files(path)
    if name == "yahoo":
        from forecaster.ingest.yahoo import Yahoo

        return Yahoo()
    if name == "simulated":
        from forecaster.ingest.simulated import Simulated

        return Simulated(seed)
    raise UsageError(
        f"source {name!r}: expected yahoo, simulated or files:PATH, PATH being a CSV, a Parquet "
        "file or a folder of them"
    )
