"""Read the record as frames."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from forecaster.errors import UsageError, listed
from forecaster.home import Home, run_name
from forecaster.record.files import joined, kind_of, read_table
from forecaster.spelling import spelled, spellings

if TYPE_CHECKING:
    import pyarrow as pa

_STAMP = 19  # first characters of a run folder's name, which stay when the run is renamed


@dataclasses.dataclass(frozen=True)
class Record:
    """The forecasts in the record.

    - ``frames``: by source, the rows in the order in which they were made, with the columns of
      :mod:`forecaster.record.keeping`. If a run has forecast a series from the same origin more
      than once, only the first forecast is there
    - ``damaged``: files that cannot be read, with the reason
    """

    frames: Mapping[str, pd.DataFrame]
    damaged: Mapping[Path, str]

    def of(self, tickers: Sequence[str] = (), run: str | None = None) -> "Record":
        """Return the forecasts of these tickers, by default all, and of one run.

        ``run``: its name at the time of the forecast; None: all runs. Raises UsageError if a ticker
        or the run has no forecast.
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
    """Return the name of a run, given the name of its folder."""
    return run_name(Path(run))


def read_record(home: Home, source: str | None = None) -> Record:
    """Read the record of all sources or of one; damaged files are named, not read."""
    parts: dict[str, list[pa.Table]] = {}
    damaged: dict[Path, str] = {}
    for path, read in _tables(home):
        if isinstance(read, str):
            damaged[path] = read
        elif source in (None, its := kind_of(read)[0]):
            parts.setdefault(its, []).append(read)
    return Record({name: _joined(tables) for name, tables in parts.items()}, damaged)


def _tables(home: Home) -> "Iterator[tuple[Path, pa.Table | str]]":
    """Yield every file with its rows, or with the reason why it cannot be read."""
    paths = home.recorded()
    for path in paths:
        try:
            yield path, read_table(path)
        except FileNotFoundError:  # meanwhile it was joined with others into a new file
            later = [new for new in home.recorded() if new not in paths]
            paths.extend(later)  # the loop reads them too
        except (OSError, ValueError) as error:  # Arrow's are ValueErrors
            yield path, str(error).splitlines()[0] if str(error) else type(error).__name__


def earlier(frame: pd.DataFrame, origins: Mapping[str, object], least: object) -> pd.DataFrame:
    """Return each series' latest forecast made at least ``least`` before a given origin.

    - ``frame``: the forecasts of one source, see :class:`Record`
    - ``origins``: by series, the time to look back from
    - ``least``: the minimum distance of the origins: a ``numpy.timedelta64``, or a number if times
      are whole numbers

    If several runs have forecast from that earlier origin, the last of these forecasts is returned.
    """
    now = frame["unique_id"].map(origins)
    known = frame[now.notna()]
    now = now[now.notna()].astype(frame["origin"].dtype)
    back = known[(now - known["origin"]).to_numpy() >= least]
    for latest in ("origin", "made"):
        groups = back.groupby("unique_id", observed=True)
        back = back[back[latest] == groups[latest].transform("max")]
    return back


def _joined(tables: "list[pa.Table]") -> pd.DataFrame:
    """Join files of one source to a frame, the earliest first, without repeated forecasts."""
    dated = kind_of(tables[-1])[1]  # if that has changed, earlier files are of other data
    frame = joined([table for table in tables if kind_of(table)[1] == dated]).to_pandas()
    frame = frame.sort_values("made", kind="stable")
    runs = frame["run"].cat
    runs = runs.categories.str[:_STAMP].to_numpy()[runs.codes]
    once = frame[["unique_id", "origin", "ds"]].assign(run=pd.Categorical(runs))
    return frame[~once.duplicated()].reset_index(drop=True)
