"""Find the rows of a panel that a transform can compute with, each from the rows before it."""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from forecaster.errors import Kind, Skipped
from forecaster.series.calendar.times import show_time
from forecaster.series.panel.panel import Panel

_LARGEST = 1e150  # largest value; its square does not overflow
_FARTHEST = 80  # orders of magnitude between two values of which only the ratio counts


class UsableRows(NamedTuple):
    """Which rows of a panel a transform can compute with, and why not with others.

    - ``logarithmic``: for each series whether its logarithm is forecast
    - ``takes_any``: whether the transform takes any value, also of short or constant series
    - ``of_prices``: whether the values are prices, which are above zero
    - ``relative``: for each series whether only ratios of its values count
    """

    panel: Panel
    logarithmic: Bool[np.ndarray, " series"]
    takes_any: bool
    of_prices: bool
    relative: Bool[np.ndarray, " series"]

    def reasons(self) -> dict[str, Skipped]:
        """Return the series that cannot be transformed, or whose errors would overflow, and why."""
        panel, needed = self.panel, self.logarithmic | (self.takes_any and self.of_prices)
        kind = Kind.NOT_POSITIVE if self.of_prices else Kind.NO_LONGER_POSITIVE
        reasons: dict[str, Skipped] = {}
        for bad, why in (
            (self._far(), Kind.TOO_FAR_APART),
            (self._without_logarithm(needed), kind),
        ):
            for row in np.flatnonzero(bad.any(1)).tolist():
                reasons[panel.ids[row]] = self._skipped(row, int(np.argmax(bad[row])), why)
        for row in np.flatnonzero(panel.constant() & (not self.takes_any)):
            reasons.setdefault(panel.ids[row], Skipped(Kind.CONSTANT, column=panel.target))
        return reasons

    def ends(self) -> Int[np.ndarray, " series"]:
        """Return the position of each series' first row that no forecast can be made from.

        Networks see the logarithm of the series and the row has none, or errors would overflow. It
        is the number of the panel's times if there is no such row.
        """
        bad = self._without_logarithm(self.logarithmic) | self._far()
        return np.where(bad.any(1), np.argmax(bad, axis=1), len(self.panel.times))

    def why_ended(self, row: int, end: int) -> Skipped:
        """Return the reason for an end of :meth:`ends`."""
        positive = self.panel.channel(self.panel.target)[row, end] > 0
        far = positive or not self.logarithmic[row]
        return self._skipped(row, end, Kind.TOO_FAR_APART if far else Kind.NO_LOGARITHM)

    def before_ends(self) -> Panel:
        """Return the panel with the rows before those of :meth:`ends`."""
        end = self.ends()
        if (end == len(self.panel.times)).all():
            return self.panel
        before = np.arange(len(self.panel.times)) < end[:, None]
        return dataclasses.replace(self.panel, mask=self.panel.mask & before)

    def _skipped(self, row: int, position: int, kind: Kind) -> Skipped:
        """Return the reason to skip a series for its value at a position of the time axis."""
        value = float(self.panel.channel(self.panel.target)[row, position])
        first = show_time(self.panel.times[position])
        return Skipped(kind, column=self.panel.target, value=value, first=first)

    def _without_logarithm(
        self, needed: Bool[np.ndarray, " series"]
    ) -> Bool[np.ndarray, "series time"]:
        """Return the rows of zero or below; ``needed``: the series whose logarithm is taken."""
        panel = self.panel
        return panel.mask & ~(panel.channel(panel.target) > 0) & needed[:, None]

    def _far(self) -> Bool[np.ndarray, "series time"]:
        """Return the rows from which on errors would overflow.

        Their value is too large, or too many orders of magnitude from an earlier one of a series of
        which only ratios count.
        """
        if not self.takes_any:
            return np.zeros_like(self.panel.mask)
        values = np.where(self.panel.mask, self.panel.channel(self.panel.target), np.nan)
        far = np.abs(values) > _LARGEST
        if self.relative.any():
            positive = np.where(values[self.relative] > 0, values[self.relative], np.nan)
            logs = np.log10(positive)
            range_so_far = np.fmax.accumulate(logs, axis=1) - np.fmin.accumulate(logs, axis=1)
            far[self.relative] = range_so_far > _FARTHEST
        return far
