"""Flags of rows that look wrong, and when each flag was known."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Shaped

UNCONFIRMED = "unconfirmed"
"""The flag of a latest row that only the next row can confirm; forecasts use such a row."""


@dataclasses.dataclass(frozen=True)
class Flags:
    """Flags of rows, which training leaves out once the flag is known.

    - ``ids``, ``times``: the series and the time of each flagged row
    - ``kinds``: the flag
    - ``known``: the time since which the row has the flag
    - ``until``: the time since which it no longer has the flag; NaT where it keeps it
    """

    ids: Shaped[np.ndarray, " flag"]
    times: Shaped[np.ndarray, " flag"]
    kinds: Shaped[np.ndarray, " flag"]
    known: Shaped[np.ndarray, " flag"]
    until: Shaped[np.ndarray, " flag"]

    def __post_init__(self) -> None:
        for array in vars(self).values():
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, some: Bool[np.ndarray, " flag"]) -> "Flags":
        """Return some of the flags."""
        return Flags(*(array[some] for array in vars(self).values()))

    def of(self, ids: Sequence[str]) -> "Flags":
        """Return the flags of some series."""
        wanted = set(ids)
        return self.select(np.array([name in wanted for name in self.ids], bool))

    def at(
        self, cutoff: Shaped[np.ndarray, ""] | np.generic, *, forecasting: bool = False
    ) -> "Flags":
        """Return the flags that hold at a cutoff; without unconfirmed ones when ``forecasting``."""
        standing = (self.known <= cutoff) & ~(self.until <= cutoff)
        if forecasting:
            standing &= self.kinds != UNCONFIRMED
        return self.select(standing)

    def within(
        self, first: Shaped[np.ndarray, ""] | np.generic, last: Shaped[np.ndarray, ""] | np.generic
    ) -> "Flags":
        """Return the flags of rows since ``first`` as they were known at ``last``."""
        if not len(self):  # its times may be dates while ``first`` and ``last`` are whole numbers
            return self
        some = self.select((self.times >= first) & (self.known <= last))
        never = np.datetime64("NaT", "ns")
        return dataclasses.replace(some, until=np.where(some.until <= last, some.until, never))
