"""Raise alarms from recorded forecasts: bands that stopped covering, errors that grew.

Only forecasts one step ahead are tested: their outcomes do not overlap, so that each is new
evidence. The tests are those of :mod:`forecaster.record.sequential`. Most of the allowed rate of
false alarms goes to single series, the rest to all of them together, which have more evidence.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from forecaster.errors import UsageError, wrong_argument
from forecaster.forecasting import bounds_of, levels_of
from forecaster.record import sequential
from forecaster.record.alarm import Alarm
from forecaster.record.keeping import COLUMN
from forecaster.record.scoring import Scorecard, held_by
from forecaster.series import show_time

COVERAGE, ERRORS = "coverage", "errors"
"""Kinds of alarms."""
RATE = 0.04
"""The usual limit of false alarms of coverage, in alarms a session."""
ERRORS_RATE = 0.005
"""The usual limit of false alarms of errors, in alarms a session."""
# Number of latest times tested, so that an alarm does not depend on what was years ago.
_TIMES = 252
_SHOWN = 21  # number of latest outcomes that an alarm's figures are about
_TOGETHER = 1 / 8  # share of the rate that goes to all series together
_MARGIN = 0.1  # relative losses up to this above those of "unchanged" raise no alarm


def forecast_alarms(
    card: Scorecard, coverage: float | None = RATE, errors: float | None = None
) -> list[Alarm]:
    """Return the alarms that hold after the latest outcome; each source is tested by itself.

    ``coverage``, ``errors``: most false alarms a session, over all series; None: no such test
    """
    if not isinstance(card, Scorecard):
        raise UsageError(f"card: expected one of scorecard(); got {type(card).__name__}")
    for name, rate in (("coverage", coverage), ("errors", errors)):
        number = isinstance(rate, int | float | np.number) and not isinstance(rate, bool)
        if rate is not None and not (number and 0 < rate <= 1):
            raise wrong_argument(name, rate, "a number above 0 and up to 1, or None")
    sources = dict(list(card.known.groupby("source", observed=True)))
    alarms: list[Alarm] = []
    for source, rows in sources.items():
        rows = _first_steps(rows)
        found: list[Alarm] = []
        if coverage is not None:
            levels = sorted(levels_of(rows.dropna(axis=1, how="all"), COLUMN), key=float)
            found += coverage_alarms(rows, levels, coverage / len(sources))
        if errors is not None:
            found += error_alarms(rows, errors / len(sources))
        for alarm in found:
            of = f" of {source}" if alarm.series is None and len(sources) > 1 else ""
            alarms.append(alarm._replace(text=f"{alarm.text}{of}"))
    return alarms


def alarm_lines(alarms: Sequence[Alarm]) -> list[str]:
    """Return a sentence for each alarm of :func:`forecast_alarms`."""
    what = {COVERAGE: "bands have stopped covering", ERRORS: "errors have grown"}
    return [
        f"{alarm.series or 'All series together'}: {what[alarm.kind]} (since {alarm.since}): "
        f"{alarm.text}."
        for alarm in alarms
    ]


def _first_steps(known: pd.DataFrame) -> pd.DataFrame:
    """Return a source's latest outcomes of forecasts one step ahead, each outcome once."""
    known = known[known["step"] == 1].infer_objects()
    known = known[~known.duplicated(["series", "ds"], keep="last")]
    times = np.sort(known["ds"].unique())[-_TIMES:]
    return known[known["ds"] >= times[0]] if len(times) else known


def coverage_alarms(rows: pd.DataFrame, levels: list[str], rate: float) -> list[Alarm]:
    """Return alarms of bands that stopped covering.

    ``rows``: outcomes with their forecasts, one step ahead
    """
    percent = [float(level) for level in levels]
    columns = [bounds_of(COLUMN, level) for level in percent]
    rows = rows.dropna(subset=[bound for pair in columns for bound in pair])
    if rows.empty or not levels:
        return []
    bounds = [(rows[low].to_numpy(float), rows[high].to_numpy(float)) for low, high in columns]
    tail = sequential.tail_probabilities(
        rows["y"].to_numpy(float), rows[COLUMN].to_numpy(float), bounds, percent
    )
    tails = _wide(rows, tail)
    e_values = [sequential.e_values_of_tails(tails.to_numpy(float), percent)]
    outside = 1 - percent[0] / 100
    missed = (tails < 1).where(tails.notna()).mean(axis=1).to_frame() - outside
    each = _since(tails, e_values, (1 - _TOGETHER) * rate, summed=True)
    together = _losing(missed, -outside, _TOGETHER * rate)
    return _alarms(COVERAGE, rows, each, together, lambda its: _covered(its, levels))


def error_alarms(rows: pd.DataFrame, rate: float) -> list[Alarm]:
    """Return alarms of forecasts whose CRPS exceeds that of "unchanged" day after day.

    ``rows``: outcomes with their scores, one step ahead
    """
    rows = rows[~rows["corrected"].astype(bool)].dropna(subset=["crps", "crps_unchanged"])
    if rows.empty:
        return []
    ours, unchanged = rows["crps"].to_numpy(float), rows["crps_unchanged"].to_numpy(float)
    larger = np.maximum(ours, unchanged)
    lost = np.where(larger > 0, (ours - unchanged) / np.where(larger > 0, larger, 1.0), 0.0)
    each = _wide(rows, lost) - _MARGIN
    alone = _losing(each, -1 - _MARGIN, (1 - _TOGETHER) * rate)
    together = _losing(each.mean(axis=1).to_frame(), -1 - _MARGIN, _TOGETHER * rate)
    return _alarms(ERRORS, rows, alone, together, _lost)


def _alarms(
    kind: str, rows: pd.DataFrame, each: Mapping[str, str], together: Mapping[str, str],
    say: Callable[[pd.DataFrame], str],
) -> list[Alarm]:  # fmt: skip
    """Return the alarms of series and of all together; ``say(rows)``: what is wrong with them."""
    ones = (Alarm(kind, n, when, say(rows[rows["series"] == n])) for n, when in each.items())
    return [*ones, *(Alarm(kind, None, when, say(rows)) for when in together.values())]


def _losing(losses: pd.DataFrame, lowest: float, rate: float) -> dict[str, str]:
    """Return the columns that :func:`_since` reports whose mean is above 0.

    ``lowest``: the lowest that a loss can be
    """
    return _since(losses, sequential.e_values_of_bets(losses.to_numpy(float), lowest), rate)


def _lost(rows: pd.DataFrame) -> str:
    """Say how large the CRPS of the latest outcomes was."""
    rows = _latest(rows)
    ratio = rows["crps"].sum() / rows["crps_unchanged"].sum()
    return (
        f"CRPS is {ratio:.2f} times that of 'unchanged' over the latest {rows['ds'].nunique()} "
        "outcomes"
    )


def _wide(rows: pd.DataFrame, values: np.ndarray) -> pd.DataFrame:
    """Return values as a table with a row per time and a column per series."""
    table = pd.DataFrame({"ds": rows["ds"], "series": rows["series"], "value": values})
    return table.pivot(index="ds", columns="series", values="value").sort_index()


def _since(
    table: pd.DataFrame, e_values: list[np.ndarray], rate: float, *, summed: bool = False
) -> dict[str, str]:
    """Return the columns reported in the last row, with the row since which each has been.

    ``summed``: the kind of detector, see :func:`sequential.detectors`
    """
    most = sequential.most_remembered(table.shape[1], rate)
    found = sequential.reported(sequential.detectors(e_values, most, summed=summed), rate)
    since = {}
    for column in np.flatnonzero(found[-1]).tolist():
        before = np.flatnonzero(~found[:, column])
        first = before[-1] + 1 if len(before) else 0
        since[str(table.columns[column])] = show_time(table.index[first])
    return since


def _covered(rows: pd.DataFrame, levels: list[str]) -> str:
    """Say what share of the latest outcomes the bands covered."""
    rows = _latest(rows)
    parts = [f"bands of {level} % covered {held_by(rows, level).mean():.0%}" for level in levels]
    return f"{' and '.join(parts)} of the latest {rows['ds'].nunique()} outcomes"


def _latest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the outcomes of the latest times."""
    return rows[rows["ds"].isin(np.sort(rows["ds"].unique())[-_SHOWN:])]
