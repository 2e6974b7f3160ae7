"""The record as frames."""

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
    parts: dict[str, list[pa.Table]] = {}
    damaged: dict[Path, str] = {}
    for path, read in _tables(home):
        if isinstance(read, str):
            damaged[path] = read
        elif source in (None, its := kind_of(read)[0]):
            parts.setdefault(its, []).append(read)
    return Record({name: _joined(tables) for name, tables in parts.items()}, damaged)


def _tables(home: Home) -> "Iterator[tuple[Path, pa.Table | str]]":
    """Every file's rows, or why it cannot be read."""
    paths = home.recorded()
    for path in paths:
        try:
            yield path, read_table(path)
        except FileNotFoundError:  # joined with others meanwhile, which is a new file
            later = [new for new in home.recorded() if new not in paths]
            paths.extend(later)  # which this loop comes to
        except (OSError, ValueError) as error:  # Arrow's are ValueErrors
            yield path, str(error).splitlines()[0] if str(error) else type(error).__name__


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
    for latest in ("origin", "made"):
        groups = back.groupby("unique_id", observed=True)
        back = back[back[latest] == groups[latest].transform("max")]
    return back


def _joined(tables: "list[pa.Table]") -> pd.DataFrame:
    """Files of one source as one frame, the earliest first, each forecast once."""
    dated = kind_of(tables[-1])[1]  # where that has changed, the former are another source's
    frame = joined([table for table in tables if kind_of(table)[1] == dated]).to_pandas()
    frame = frame.sort_values("made", kind="stable")
    runs = frame["run"].cat
    runs = runs.categories.str[:_STAMP].to_numpy()[runs.codes]
    once = frame[["unique_id", "origin", "ds"]].assign(run=pd.Categorical(runs))
    return frame[~once.duplicated()].reset_index(drop=True)
