"""Read the record as frames."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from forecaster.errors import UsageError, check_names, check_type, listed, spelled, spellings
from forecaster.files import Home, as_home, run_name
from forecaster.forecasting import bounds_of
from forecaster.ingest import known_source
from forecaster.record.keeping import COLUMN, STAMP, joined, kind_of, read_table
from forecaster.record.timing import AFTER, made_after

_RUN, _AT = "run_as_saved", "at"  # columns that are taken away again


@dataclasses.dataclass(frozen=True)
class Record:
    """The forecasts in the record.

    - ``frames``: the rows by source, in the order in which they were made, with the columns of
      :mod:`forecaster.record.keeping`, and ``made_after``, see
      :func:`forecaster.record.timing.made_after`. If a run has forecast a series from the same
      origin more than once, only the last forecast before the outcome is there, with all the bands
      that were asked for. So forecasts from corrected rows replace earlier ones
    - ``damaged``: files that cannot be read, with the reason
    """

    frames: Mapping[str, pd.DataFrame]
    damaged: Mapping[Path, str]

    def of(self, tickers: Sequence[str] = (), run: str | None = None) -> "Record":
        """Return the forecasts of these tickers and of one run; by default of all tickers and runs.

        ``run``: the run's name at the time of the forecast; None: all runs. Raises UsageError if a
        ticker or the run has no forecast.
        """
        check_names("tickers", tickers)
        frames = self.frames
        if run is not None:
            check_type("run", run, str, "the name of a run, or None")
            frames = {source: part[part["run"].map(named) == run] for source, part in
                      frames.items()}  # fmt: skip
            if not any(map(len, frames.values())):
                there = {named(name) for part in self.frames.values() for name in part["run"]}
                raise UsageError(
                    f"no forecast of a run {run!r} in the record; there are {listed(sorted(there))}"
                )
        if len(tickers):
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

    Damaged files are listed with the reason, and their forecasts are missing.

    - ``home``: the folder of the record; None: the default home of the command line
    - ``source``: as the record spells it, such as ``yahoo`` or ``files:/data/prices.csv``, or the
      path of a file

    Raises UsageError for a folder that is not there, and for a source that the record has no
    forecasts of, but of others.
    """
    check_type("source", source, str | None, "the name of a source, or None")
    if isinstance(home, str | Path) and not as_home(home).folder.is_dir():
        raise UsageError(f"{home}: no such folder; expected the home of a record")
    record = record_of(as_home(home), source)
    if source is not None and not record.frames:
        others = record_of(as_home(home)).frames
        if (named := known_source(source, others)) in others:
            return Record({named: others[named]}, record.damaged)
        if others:
            said = "this URL" if "://" in source else f"the source {source!r}"  # it may be secret
            raise UsageError(
                f"no forecast of {said} in the record; there are {listed(sorted(others))}"
            )
    return record


def record_of(home: Home, source: str | None = None) -> Record:
    """Read the forecasts of all sources or of one, which may have none."""
    parts: dict[str, list[pa.Table]] = {}
    damaged: dict[Path, str] = {}
    for path, read in _tables(home):
        if isinstance(read, str):
            damaged[path] = read
        elif source in (None, its := kind_of(read)[0]):
            parts.setdefault(its, []).append(read)
    return Record({name: _joined(tables) for name, tables in parts.items()}, damaged)


def _tables(home: Home) -> Iterator[tuple[Path, pa.Table | str]]:
    """Yield every file with its rows, or with the reason why it cannot be read."""
    paths = home.recorded()
    for path in paths:
        try:
            yield path, read_table(path)
        except FileNotFoundError:  # the file was joined with others into a new file meanwhile
            later = [new for new in home.recorded() if new not in paths]
            paths.extend(later)  # the loop reads them too
        except (OSError, ValueError) as error:  # errors of Arrow are ValueErrors
            yield path, str(error).splitlines()[0] if str(error) else type(error).__name__


def earlier(frame: pd.DataFrame, origins: Mapping[str, object], least: object) -> pd.DataFrame:
    """Return each series' latest forecast made at least ``least`` before a given origin.

    - ``frame``: the forecasts of one source, see :class:`Record`
    - ``origins``: the time to look back from, by series
    - ``least``: the minimum time between the two origins: a ``numpy.timedelta64``, or a number if
      times are whole numbers

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


def most_changed(
    frame: pd.DataFrame, origins: Mapping[str, object], level: float, count: int
) -> list[str]:
    """Return the series whose bands one step ahead have changed most since the forecast before.

    - ``frame``, ``origins``: as for :func:`earlier`; the frame has the latest forecasts, too
    - ``level``: of the bands, in percent; ``count``: how many series to return, at most
    """
    (low, high), dated = bounds_of(COLUMN, level), frame["origin"].dtype.kind == "M"
    if low not in frame:
        return []
    rows = frame[(frame["step"] == 1) & frame[low].notna()].assign(
        unique_id=lambda rows: rows["unique_id"].astype(str)
    )
    lower, upper = (rows[name].to_numpy(float) for name in (low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        width = np.where(rows["target"] != "y", np.log(upper / lower), upper - lower)
        rows["width"] = np.log(width)
    then = earlier(rows, origins, np.timedelta64(1, "ns") if dated else 1)
    now = rows[rows["unique_id"].map(origins) == rows["origin"]]
    widths = [
        part.drop_duplicates("unique_id", keep="last").set_index("unique_id")["width"]
        for part in (now, then)
    ]
    change = widths[0].sub(widths[1]).replace([np.inf, -np.inf], np.nan).dropna().abs()
    return [str(name) for name in change[change > 0].nlargest(count).index]


def _joined(tables: list[pa.Table]) -> pd.DataFrame:
    """Join files of one source to a frame, the earliest forecast first, each forecast once."""
    # If the kind of times has changed, earlier files are about other data.
    dated = kind_of(tables[-1])[1]
    frame = joined([table for table in tables if kind_of(table)[1] == dated]).to_pandas()
    frame = frame.sort_values("made", kind="stable", ignore_index=True)
    return _once(frame.assign(**{AFTER: made_after(frame)}))


def _once(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each forecast once: the last made before its outcome, or else the last.

    Bands that only earlier forecasts have are added, if their values and medians are the same.
    """
    run = frame["run"].astype(str).str[:STAMP]
    keyed = frame.assign(**{_RUN: run, _AT: np.arange(len(frame))})
    key = ["unique_id", "origin", "ds", _RUN]
    again = keyed.duplicated(key, keep=False)
    # Forecasts before the outcome come last, since the last counts.
    some = keyed[again].sort_values(AFTER, ascending=False, kind="stable")
    last = some.groupby(key, sort=False, observed=True)[["value", COLUMN]].transform("last")
    same = np.isclose(some[["value", COLUMN]], last, rtol=1e-9, atol=0, equal_nan=True).all(1)
    once = some[same].groupby(key, sort=False, observed=True).last()  # the last known bounds
    both = pd.concat([keyed[~again], once.reset_index()]) if again.any() else keyed
    return both.sort_values(_AT, ignore_index=True)[list(frame)]
