"""Read stored series as they were known at the cutoffs of an evaluation, some at a time.

All shards are on the time axis of all series, so that they have the same cutoffs.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from forecaster.errors import NoSeries, Skipped
from forecaster.forecasting import Config
from forecaster.ingest import Store
from forecaster.pipeline.blocks import Reader
from forecaster.series import ENDS, Flags, OwnEnds, Panel, Time, check_market, on_axis, union_of
from forecaster.storage import FitRequest


@dataclasses.dataclass(frozen=True)
class Past(Reader):
    """Reads panels of some stored series with all rows, and the flags of rows that look wrong.

    - ``flags``: rows are not learned from once their flag is known
    - ``times``: the times of all series; None: not known yet
    - ``own``: whether each series is evaluated at its own end
    - ``target``: the channel that is forecast
    - ``lengths``, ``ends``: the number of rows and the latest time of each series
    """

    flags: Flags | None = None
    times: Shaped[np.ndarray, " time"] | None = None
    own: bool = False
    target: str = ""
    lengths: Int[np.ndarray, " series"] = dataclasses.field(
        default_factory=lambda: np.zeros(0, int)
    )
    ends: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    @staticmethod
    def of_all(store: Store, request: FitRequest, flags: Flags | None, ends: str) -> "Past":
        """Read all series once. Raises NoSeries or StoreError if there is none."""
        past = dataclasses.replace(Past.of(store, request), flags=flags)
        seen, same = past._scan(ends)
        return seen if same else dataclasses.replace(past, layout=seen.layout)._scan(ends)[0]

    def aligned(self, ids: Sequence[str]) -> tuple[Panel, OwnEnds | None]:
        """Read some series; if their ends are aligned, return also how to restore their times.

        Raises NoSeries or StoreError if none of the series can be read.
        """
        panel = self.read(ids)
        if self.times is not None:
            panel = on_axis(panel, self.times)
        if self.flags is not None:
            panel = panel.with_flags(self.flags)
        return OwnEnds.align(panel) if self.own else (panel, None)

    def _scan(self, aligned: str) -> tuple["Past", bool]:
        """Read all shards; return a reader that knows the times and lengths of all series.

        The last result says whether each shard had the channels of all series.
        """
        assert aligned in ENDS
        skipped: dict[str, Skipped] = dict(self.request.skipped)
        axes: list[np.ndarray] = []
        channels: dict[tuple[str, ...], None] = {}
        firsts, ends = set[object](), dict[str, Any]()
        rows, target = list[np.ndarray](), ""
        for panel in self.each_shard(skipped):
            check_market(panel)
            skipped |= panel.skipped
            axes = [union_of([*axes, panel.times])]
            channels[panel.channels] = None
            rows, target = [*rows, panel.mask.sum(1)], panel.target
            firsts |= set(panel.times[panel.mask.argmax(1)].tolist())
            latest = len(panel.times) - 1 - panel.mask[:, ::-1].argmax(1)
            ends |= dict(zip(panel.ids, panel.times[latest], strict=True))
        if not axes:
            raise NoSeries(skipped)
        every = tuple(dict.fromkeys(name for part in channels for name in part))
        # Times that only count the rows of each series, see :func:`forecaster.series.aligned_if`.
        counts = axes[0].dtype.kind != "M" and len(firsts) == 1 and len({*ends.values()}) > 1
        known = dataclasses.replace(
            self,
            request=dataclasses.replace(self.request, skipped=skipped),
            layout=self.layout._replace(channels=every),
            times=axes[0],
            own=aligned == "own" or (aligned == "auto" and counts and target == "y"),
            target=target,
            lengths=np.concatenate(rows),
            ends=ends,
        )
        return known, list(channels) == [every]


@dataclasses.dataclass(frozen=True)
class Known(Past):
    """Reads what was known of series at a cutoff, for networks to learn from.

    - ``cutoff``: a time of the axis of all series
    - ``settle``: returns the settings without networks if the rows of the longest series are too
      few for them, else the same; None: an earlier cutoff has decided
    """

    cutoff: Time | Shaped[np.ndarray, ""] = 0
    settle: Callable[[Config, str, int], Config] | None = None

    def panel(self, ids: Sequence[str]) -> Panel:
        """Read some series, without the rows that were known at the cutoff to look wrong."""
        return self.with_all_rows(ids).masked()

    def with_all_rows(self, ids: Sequence[str]) -> Panel:
        """Read some series, with the flags that were known at the cutoff."""
        return self._like_all(self.aligned(ids)[0].until(self.cutoff))

    def settled(self, most: int) -> Config:
        """Return the settings, without networks if the longest series has too few rows for them.

        ``most``: rows up to the cutoff of the longest series
        """
        config = self.request.config
        return config if self.settle is None else self.settle(config, self.target, most)
