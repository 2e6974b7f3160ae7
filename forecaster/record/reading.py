"""Read the record as frames."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from forecaster.errors import UsageError, listed
from forecaster.home import Home, as_home, run_name
from forecaster.record.files import joined, kind_of, read_table
from forecaster.record.keeping import COLUMN
from forecaster.record.timing import AFTER, made_after
from forecaster.spelling import spelled, spellings

if TYPE_CHECKING:
    import pyarrow as pa

_STAMP = 19  # first characters of a run folder's name, which stay when the run is renamed


@dataclasses.dataclass(frozen=True)
class Record:
    """The forecasts in the record.

    - ``frames``: by source, the rows in the order in which they were made, with the columns of
      :mod:`forecaster.record.keeping`, and ``made_after``, see
      :func:`forecaster.record.timing.made_after`. If a run has forecast a series from the same
      origin more than once, only the last forecast before the outcome is there, so that those from
      corrected rows count, with all the bands that were asked for
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


def read_record(home: Home | str | Path | None = None, source: str | None = None) -> Record:
    """Read the forecasts that were made, of all sources or of one.

    Damaged files are named, not read.

    - ``home``: the folder of the record; None: that of the command line
    - ``source``: as the record spells it, such as ``yahoo`` or ``files:/data/prices.csv``
    """
    home = as_home(home)
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
    """Join files of one source to a frame, the earliest first, each forecast once."""
    dated = kind_of(tables[-1])[1]  # if that has changed, earlier files are of other data
    frame = joined([table for table in tables if kind_of(table)[1] == dated]).to_pandas()
    frame = frame.sort_values("made", kind="stable", ignore_index=True)
    return _once(frame.assign(**{AFTER: made_after(frame)}))


def _once(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each forecast once: the last made before its outcome, or else the last.

    Bands that only earlier ones have are added, if their values and medians are the same.
    """
    runs = frame["run"].cat
    runs = runs.categories.str[:_STAMP].to_numpy()[runs.codes]
    key = frame[["unique_id", "origin", "ds"]].assign(run=pd.Categorical(runs))
    order = np.argsort(~frame[AFTER].to_numpy(), kind="stable")  # those that count come last
    kept = order[~key.iloc[order].duplicated(keep="last").to_numpy()]
    counted = frame.iloc[np.sort(kept)]
    if len(counted) == len(frame):
        return counted.reset_index(drop=True)
    repeated = np.flatnonzero(key.duplicated(keep=False))
    number = key.iloc[repeated].groupby(list(key), sort=False, observed=True).ngroup().to_numpy()
    winner = np.zeros(number.max() + 1, int)
    is_kept = np.isin(repeated, kept)
    winner[number[is_kept]] = repeated[is_kept]
    winner = winner[number]
    same = np.all(
        [_equal(frame[name].to_numpy(), repeated, winner) for name in ("value", COLUMN)], axis=0
    )
    bands = [name for name in frame.columns if name.startswith(f"{COLUMN}-")]
    found = frame.iloc[repeated[same]][bands].groupby(winner[same]).last()  # the last that is known
    counted = counted.copy()
    counted.loc[found.index, bands] = counted.loc[found.index, bands].fillna(found)
    return counted.reset_index(drop=True)


def _equal(values: np.ndarray, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.isclose(values[rows], values[others], rtol=1e-9, atol=0, equal_nan=True)
