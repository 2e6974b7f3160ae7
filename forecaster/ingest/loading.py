"""Load a panel straight from a source."""

from collections.abc import Sequence
from typing import Unpack

from forecaster.errors import DataError, Kind, Skipped, UsageError, check_whole, name_reasons
from forecaster.ingest.frames import Table, panel_of_frame
from forecaster.ingest.review.quality import WRONG, as_texts, check_flags, find_flags, flags_of
from forecaster.ingest.sources.sources import open_source
from forecaster.ingest.store.series_file import Arrays
from forecaster.ingest.tables.options import ColumnOptions, Columns
from forecaster.ingest.tables.steps import with_frequency
from forecaster.series import Date, Panel


def load_panel(
    source: str | Table = "simulated",
    tickers: Sequence[str] | None = None,
    *,
    start: Date | None = None,
    end: Date | None = None,
    seed: int = 0,
    mask: Sequence[str] = WRONG,
    query: str | None = None,
    **columns: Unpack[ColumnOptions],
) -> Panel:
    """Load a panel straight from a source, without storing it.

    - ``source``: ``yahoo``, ``simulated``, ``files:PATH``, ``files:URL``, ``sql:URL``, or a frame
      of pandas, polars or pyarrow: with a row per series and time, with a column per series and
      the times in the index or a column, or as ``yfinance.download`` returns it
    - ``tickers``: the series to load; None: all that the source holds
    - ``start``, ``end``: the first and the last day, both included
    - ``seed``: of the simulated market
    - ``mask``: flags whose rows are left out of training, see
      :mod:`forecaster.ingest.review.quality`. The panel still holds these rows, with their flags;
      see :meth:`Panel.masked`. A frame is not reviewed
    - ``query``: of a database: one SELECT, or the name of a table
    - ``id_col, time_col, target_col, wide, date_format, missing, decimal``: how a table is read, as
      far as it does not show it; see :class:`forecaster.ingest.ColumnOptions`

    Series that cannot be loaded are named in the panel's ``skipped``.

    Raises DataError if no series can be loaded, UsageError if the source is unknown.
    """
    check_flags(mask := as_texts("mask", mask))
    tickers = None if tickers is None else as_texts("tickers", tickers)
    check_whole("seed", seed)
    roles = Columns.of(columns)
    if not isinstance(source, str):
        if query is not None:
            raise UsageError("query is for a database; leave it out with a frame")
        panel = panel_of_frame(source, tickers, columns=roles)
        return panel.between(start, end)
    opened = open_source(source, seed=seed, columns=roles, query=query)
    series, skipped = {}, {}
    for item in opened.fetch(
        opened.tickers() if tickers is None else list(dict.fromkeys(tickers)), start
    ):
        if item.frame is None:
            skipped[item.unique_id] = Skipped(
                Kind.NOT_LOADED, detail=item.reason or "no reason given"
            )
        else:
            series[item.unique_id] = Arrays.of(item.frame)
    if not series:
        raise DataError(f"{opened.name}: no series could be loaded:\n{name_reasons(skipped)}")
    panel = Panel.from_arrays(series, skipped).between(None, end)
    if mask and panel.times.dtype.kind == "M":
        panel = panel.with_flags(flags_of(find_flags(panel), mask))
    return with_frequency(panel.between(start, None), roles.frequency)
