"""Rows of series that look wrong, and when that was known."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Shaped

UNCONFIRMED = "unconfirmed"
"""The flag of a latest row that the next one will confirm or refute; it is forecast from."""


@dataclasses.dataclass(frozen=True)
class Flags:
    """Rows that are left out of training from the time on at which they are known to look wrong.

    - ``ids``, ``times``: which rows: of which series, and their times
    - ``kinds``: the flags
    - ``known``: the time from which on the row has the flag
    - ``until``: the time from which on it no longer has; NaT where it keeps it
    """

    ids: Shaped[np.ndarray, " flag"]
    times: Shaped[np.ndarray, " flag"]
    kinds: Shaped[np.ndarray, " flag"]
    known: Shaped[np.ndarray, " flag"]
    until: Shaped[np.ndarray, " flag"]

    def __post_init__(self) -> None:
        for array in (self.ids, self.times, self.kinds, self.known, self.until):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, some: Bool[np.ndarray, " flag"]) -> "Flags":
        """Some of the flags."""
        fields = (self.ids, self.times, self.kinds, self.known, self.until)
        return Flags(*(field[some] for field in fields))

    def of(self, ids: Sequence[str]) -> "Flags":
        """Those of some series."""
        wanted = set(ids)
        return self.select(np.array([name in wanted for name in self.ids], bool))

    def at(
        self, cutoff: Shaped[np.ndarray, ""] | np.generic, *, forecasting: bool = False
    ) -> "Flags":
        """Those that rows have at a cutoff; without unconfirmed ones when ``forecasting``."""
        standing = (self.known <= cutoff) & ~(self.until <= cutoff)
        if forecasting:
            standing &= self.kinds != UNCONFIRMED
        return self.select(standing)

    def within(
        self, first: Shaped[np.ndarray, ""] | np.generic, last: Shaped[np.ndarray, ""] | np.generic
    ) -> "Flags":
        """What was known at a time of the rows since another."""
        if not len(self):  # whose times are dates, also beside series that count in whole numbers
            return self
        some = self.select((self.times >= first) & (self.known <= last))
        never = np.datetime64("NaT", "ns")
        return dataclasses.replace(some, until=np.where(some.until <= last, some.until, never))
