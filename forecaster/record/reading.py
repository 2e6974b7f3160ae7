"""The record as frames."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from forecaster.errors import UsageError, listed
from forecaster.home import Home, run_name
from forecaster.paths import open_for_arrow
from forecaster.record.keeping import COLUMN
from forecaster.spelling import spelled, spellings

_NEEDED = ("made", "run", "source", "target", "unique_id", "origin", "ds", "step", "value", COLUMN)
_STAMP = 19  # characters of the name of a run's folder, which it keeps when it is renamed


@dataclasses.dataclass(frozen=True)
class Record:
    """Forecasts that were made.

    - ``frames``: by source, their rows in the order in which they were made, as
      :mod:`forecaster.record.keeping` describes them; of a forecast that a run has made of a series
      from an origin more than once, the first
    - ``damaged``: files that cannot be read, and why
    """

    frames: Mapping[str, pd.DataFrame]
    damaged: Mapping[Path, str]

    def of(self, tickers: Sequence[str] = (), run: str | None = None) -> "Record":
        """Those of some series, by default all, and of a run, by its name when it forecast.

        Raises UsageError when there is none.
        """
        frames = self.frames
        if run is not None:
            frames = {source: part[part["run"].map(named) == run] for source, part in
                      frames.items()}  # fmt: skip
            if not any(map(len, frames.values())):
                there = {named(name) for part in self.frames.values() for name in part["run"]}
                raise UsageError(
                    f"no forecast of a run {run!r} in the record; there are {listed(sorted(there))}"
                )
        if tickers:
            known = spellings({name for part in frames.values() for name in part["unique_id"]})
            wanted = {name: spelled(known, name) for name in tickers}
            if unknown := [name for name, found in wanted.items() if found is None]:
                raise UsageError(
                    f"no forecast of {listed(unknown)} in the record; there are "
                    f"{listed(sorted(set(known.values()))[:20])}"
                )
            frames = {source: part[part["unique_id"].isin(set(wanted.values()))] for source, part
                      in frames.items()}  # fmt: skip
        return Record({s: part for s, part in frames.items() if len(part)}, self.damaged)


def named(run: str) -> str:
    """What a run was called, by the name of its folder."""
    return run_name(Path(run))


def read_record(home: Home, source: str | None = None) -> Record:
    """Read all that was recorded, or what was of one source; damaged files are left out."""
    parts: dict[str, list[pd.DataFrame]] = {}
    damaged = {}
    for path in home.recorded():
        try:
            frame = _read(path)
        except (OSError, ValueError) as error:  # Arrow's are ValueErrors
            damaged[path] = str(error).splitlines()[0] if str(error) else type(error).__name__
            continue
        its = str(frame["source"].iloc[0])
        if source in (None, its):
            parts.setdefault(its, []).append(frame)
    return Record({name: _joined(frames) for name, frames in parts.items()}, damaged)


def earlier(frame: pd.DataFrame, origins: Mapping[str, object], least: object) -> pd.DataFrame:
    """Of each series, the latest forecast whose origin is at least so long before another.

    - ``frame``: of one source, see :class:`Record`
    - ``origins``: by series, the times to look back from
    - ``least``: how far; a ``numpy.timedelta64``, or a number for times that are whole numbers

    Returns its rows; of several runs with this origin, those of the one that forecast last.
    """
    now = frame["unique_id"].map(origins)
    known = frame[now.notna()]
    now = now[now.notna()].astype(frame["origin"].dtype)
    back = known[(now - known["origin"]).to_numpy() >= least]
    back = back[back["origin"] == back.groupby("unique_id")["origin"].transform("max")]
    return back[back["made"] == back.groupby("unique_id")["made"].transform("max")]


def _read(path: Path) -> pd.DataFrame:
    """One file. Raises ValueError when it is not a file of the record."""
    import pyarrow.parquet as pq

    with open_for_arrow(path) as file:
        frame = pq.read_table(file).to_pandas()
    if missing := [name for name in _NEEDED if name not in frame]:
        raise ValueError(f"no column {', '.join(missing)}")
    if frame.empty:
        raise ValueError("no rows")
    return frame


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Files of one source as one frame, the earliest first, each forecast once."""
    kinds = {frame["ds"].dtype.kind for frame in frames}
    if len(kinds) > 1:  # the source has changed from dates to numbers: the latter are another's
        kind = frames[-1]["ds"].dtype.kind
        frames = [frame for frame in frames if frame["ds"].dtype.kind == kind]
    texts = ("run", "source", "target", "unique_id")
    plain = [frame.astype(dict.fromkeys(texts, object)) for frame in frames]
    frame = pd.concat(plain, ignore_index=True).sort_values("made", kind="stable")
    once = frame[["unique_id", "origin", "ds"]].assign(run=frame["run"].str[:_STAMP])
    return frame[~once.duplicated()].reset_index(drop=True)
