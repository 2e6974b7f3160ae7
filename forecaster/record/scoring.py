"""Score recorded forecasts by the prices that are stored now."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int

from forecaster.errors import StoreError
from forecaster.evaluation import held
from forecaster.files import Home, as_home
from forecaster.forecasting import levels_of, quantile_columns
from forecaster.ingest import WRONG, Store, masked_rows, panel_from_store
from forecaster.record.keeping import COLUMN
from forecaster.record.outcomes import (
    APART,
    GONE,
    KNOWN,
    MISSING,
    OPEN,
    with_outcomes,
    without_outcomes,
)
from forecaster.record.reading import Record, read_record
from forecaster.series import TARGETS

FEW = 20
"""With fewer origins the figures cover too few days to judge by."""
_NOT_SCORED = {
    MISSING: "{} values have no outcome: none is stored for their time.",
    GONE: "{} values cannot be compared: their series, or the rows they were forecast from, are no "
    "longer stored.",
    APART: "{} values were forecast after their outcome, and do not count: their data were late, "
    "or had been rolled back.",
    "corrected": "{} values were forecast from a value that has been corrected since; their errors "
    "are left out, their coverage is not.",
}
"""What is said of values that do not count, or only in part."""
SPANS = {"month": (30, 21), "quarter": (91, 63)}
"""Latest spans of a scorecard: in days, and in times if times are numbers."""


@dataclasses.dataclass(frozen=True)
class Scorecard:
    """The recorded forecasts and their outcomes.

    ``rows`` has the columns of the record, and:

    - ``series``: its ``unique_id``, followed by the source where several have such a series
    - ``state``: ``known``; ``open`` (the stored prices end before the forecast's time); ``missing``
      (no value is stored at its time, or a wrong one); ``gone`` (the series, or the rows it was
      forecast from, are no longer stored); or ``apart`` (the forecast was made after its outcome,
      see :func:`forecaster.record.timing.made_after`)
    - ``y``: the known outcome in the units of the forecast, ``scale`` times the stored value
    - ``error`` and ``error_unchanged``: absolute errors of the forecast and of "unchanged"
    - ``crps`` and ``crps_unchanged``: the CRPS of both, over the quantiles that were forecast
    - ``corrected``: whether the value at the origin has been corrected since, by more than half of
      a usual change. Means leave out the errors of such rows, since a single one can dominate a
      mean

    Errors and CRPS are in units of the usual change over the same number of steps: half the width
    of the 80 % band of "unchanged".

    ``simulated``: whether the forecasts are of a simulated market. ``damaged``: files of the record
    that could not be read, with the reason.
    """

    rows: pd.DataFrame
    simulated: bool
    damaged: Mapping[Path, str] = dataclasses.field(default_factory=dict)

    @property
    def known(self) -> pd.DataFrame:
        """The rows whose outcome is known."""
        return self.rows[self.rows["state"] == KNOWN]

    @property
    def levels(self) -> list[str]:
        """The levels of the bands that were forecast, in percent, the narrowest first."""
        return sorted(levels_of(self.rows, COLUMN), key=float)

    def over(self, span: str) -> "Scorecard":
        """Return the forecasts for times in the latest span of known outcomes.

        ``span``: one of :data:`SPANS`, or ``all``
        """
        if span == "all" or not len(self.known):
            return self
        days, steps = SPANS[span]
        inside = pd.Series(data=False, index=self.rows.index)
        ds = self.rows["ds"]
        dated = pd.Series(ds.dtype.kind == "M", index=ds.index)
        if ds.dtype == object:  # the times of some sources are dates, those of others whole numbers
            dated = ds.map(lambda time: isinstance(time, pd.Timestamp))
        for of_dates, part in self.rows.groupby(dated):
            times = part["ds"].infer_objects()
            last = times[part["state"] == KNOWN].max()
            length = pd.Timedelta(days=days) if of_dates else steps
            inside[part.index] = (times > last - length) & (times <= last)
        return dataclasses.replace(self, rows=self.rows[inside])

    def count(self, state: str) -> int:
        """Return the number of rows in a state."""
        return int((self.rows["state"] == state).sum())

    def table(self, by: str | list[str] = "series") -> pd.DataFrame:
        """Return scores by series, or by other columns, without rows whose state is ``apart``.

        - ``forecasts``: number of combinations of run, series and origin
        - ``outcomes``, ``open``: numbers of rows
        - ``held-80``, ...: share of outcomes inside the 80 % band
        - ``crps``, ``mae``: relative to "unchanged"
        """
        parts = self.rows.groupby(by, sort=True, observed=True)
        names = parts.size().index
        table = self._scores(parts.ngroup().to_numpy(), len(names))
        return table.assign(by=names.tolist())[["by", *table]]

    def total(self) -> pd.Series:
        """Return the scores of :meth:`table` over all rows."""
        return self._scores(np.zeros(len(self.rows), int), 1).iloc[0].rename(None)

    @property
    def origins(self) -> int:
        """The number of distinct origins of forecasts with an outcome."""
        return self.known["origin"].nunique()

    def lines(self) -> list[str]:
        """Return a summary in sentences."""
        rows, total = self.rows[self.rows["state"] != APART], self.total()
        many = total["forecasts"] > 1
        sentences = [
            f"{total['forecasts']:.0f} forecast{'s' if many else ''} of "
            f"{rows['series'].nunique()} series {'were' if many else 'was'} made, with "
            f"{len(rows)} values: {len(self.known)} have come, {self.count(OPEN)} are still open."
        ]
        if len(self.known):
            held = [f"bands of {lv} % covered {total[f'held-{lv}']:.1%}" for lv in self.levels]
            scores = [
                f"the {name} is {total[key]:.3f} times that of 'unchanged'"
                for key, name in (("crps", "CRPS"), ("mae", "absolute error"))
                if np.isfinite(total[key])
            ]
            sentences.append(_sentence([*held, *scores]))
            if self.origins < FEW:
                sentences.append(
                    f"These outcomes are of forecasts made from {self.origins} "
                    f"{'day' if self.origins == 1 else 'days'}: too few to judge by, since series "
                    "move together."
                )
        elif self.count(OPEN):
            sentences.append(
                "`forecaster ingest` fetches what has come since; then run this again."
            )
        return [*sentences, *self._not_scored()]

    def _not_scored(self) -> list[str]:
        """Return a sentence for each kind of value that does not count, or counts in part."""
        counts = {kind: self.count(kind) for kind in _NOT_SCORED}
        counts["corrected"] = int(self.known["corrected"].sum())
        return [text.format(counts[kind]) for kind, text in _NOT_SCORED.items() if counts[kind]]

    def recent_lines(self) -> list[str]:
        """Return a sentence for each of the latest spans that is shorter than the record."""
        sentences: list[str] = []
        for span in SPANS:
            part = self.over(span)
            if len(part.known) < len(self.known):
                total = part.total()
                held = [f"bands of {lv} % covered {total[f'held-{lv}']:.1%}" for lv in self.levels]
                crps = [f"CRPS {total['crps']:.3f}"] if np.isfinite(total["crps"]) else []
                sentences.append(
                    f"Of the latest {span}, {len(part.known)} values: {'; '.join([*held, *crps])}."
                )
        return sentences

    def _scores(self, group: Int[np.ndarray, " row"], groups: int) -> pd.DataFrame:
        """Return a row of scores for each group; ``group``: the group of each row, or -1."""
        rows = self.rows.assign(group=group)
        rows = rows[(group >= 0) & (rows["state"] != APART)]
        known, waiting = rows[rows["state"] == KNOWN], rows[rows["state"] == OPEN]
        made = rows.drop_duplicates(["run", "series", "origin", "group"])
        parts = {"forecasts": made, "outcomes": known, "open": waiting}
        counts = pd.DataFrame({n: part.groupby("group").size() for n, part in parts.items()})
        held = {f"held-{lv}": held_by(known, lv).groupby(known["group"]).mean()
                for lv in self.levels}  # fmt: skip
        ratios = {"crps": _ratios(known, "crps"), "mae": _ratios(known, "error")}
        counts = counts.reindex(range(groups)).fillna(0).astype(int)
        return counts.join(pd.DataFrame(held | ratios, dtype=float))


def scorecard(
    home: Home | str | Path | None = None,
    tickers: Sequence[str] = (),
    run: str | None = None,
    source: str | None = None,
) -> Scorecard:
    """Score the forecasts that were made by the prices that are stored now.

    The command ``forecaster scorecard`` does the same; see :func:`forecaster.record.score_record`.

    - ``home``: the folder of record and prices; None: the default home of the command line
    - ``tickers``, ``run``: the series, and the name of the run; by default all
    - ``source``: as the record spells it; None: all sources

    Raises UsageError if a ticker, the run or the source has no forecast, or the folder is not
    there.
    """
    record = read_record(home, source).of(tickers, run)
    return score_record(as_home(home), record)


def score_record(home: Home, record: Record) -> Scorecard:
    """Join forecasts with the stored prices, and score forecasts whose outcome is stored.

    Simulated sources count only if there are no others.

    Prices that were adjusted since the forecast, for splits or dividends, are compared in the units
    of the forecast: outcomes are multiplied by the ratio of recorded to stored value. This ratio is
    the one at the origin if later rows agree with it; otherwise the median over the origin and two
    earlier rows, so that a single corrected price is not taken for an adjustment. Rows with flags
    that are left out of training are not outcomes.

    "Unchanged" is the value at the origin with the bands of a random walk. The volatility of the
    walk is that of all rows up to the origin, as in an evaluation. Its CRPS is over the same
    quantiles.
    """
    real = {source: frame for source, frame in record.frames.items() if source != "simulated"}
    parts = [_of_source(home, source, frame) for source, frame in (real or record.frames).items()]
    rows = _named(pd.concat(parts, ignore_index=True)) if parts else pd.DataFrame()
    return Scorecard(rows, bool(parts) and not real, dict(record.damaged))


def _named(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the column ``series``, see :class:`Scorecard`."""
    name, source = rows["unique_id"].astype(str), rows["source"].astype(str)
    sources = source.groupby(name).transform("nunique")
    return rows.assign(series=name.where(sources < 2, name + " (" + source + ")"))


def _sentence(parts: list[str]) -> str:
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def held_by(known: pd.DataFrame, level: str) -> pd.Series:
    """Return how much of each outcome lies in a band, counted as in evaluations."""
    quantiles = quantile_columns(known, COLUMN)
    forecasts = known[list(quantiles.values())].to_numpy(float)
    share = held(known["y"], forecasts, list(quantiles), float(level))
    return pd.Series(share, index=known.index)


def _ratios(known: pd.DataFrame, score: str) -> pd.Series:
    """Return each group's mean score divided by that of "unchanged"; NaN if it has none."""
    unchanged = f"{score}_unchanged"
    both = known.loc[~known["corrected"].astype(bool), ["group", score, unchanged]].dropna()
    sums = both.groupby("group").sum()
    return (sums[score] / sums[unchanged]).where(sums[unchanged] > 0)


def _of_source(home: Home, source: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the forecasts of one source with their states, outcomes and scores."""
    store = Store.open(home, source)
    ids = [str(name) for name in frame["unique_id"].unique() if name in store]
    if not ids:
        return without_outcomes(frame)
    try:
        wrong = masked_rows(store, ids, WRONG)
        panel = panel_from_store(store, ids, flagged=wrong, channels=TARGETS)
    except StoreError:
        return without_outcomes(frame)
    if panel.times.dtype.kind != np.asarray(frame["ds"]).dtype.kind:
        return without_outcomes(frame)
    return with_outcomes(frame, panel)
