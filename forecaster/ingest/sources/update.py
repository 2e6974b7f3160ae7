"""Bring a stored series up to date: fetch little, but notice when history was rewritten."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from forecaster.ingest.sources.source import Date, Fetched, Stored
from forecaster.series import nearest_time

OVERLAP = 10  # stored sessions that are fetched again
_ACTIONS = ("dividends", "splits")
_PRICES = ("open", "high", "low", "close", "adj_close")
_TOLERANCE = 1e-5  # relative; a dividend of 1/10,000 of the price exceeds it
_LOST = 5  # stored sessions that a new answer may lack

Get = Callable[[pd.Timestamp | None], pd.DataFrame]


def bring_up_to_date(
    name: str, get: Get, stored: Stored | None, start: Date | None, last_closed: pd.Timestamp
) -> Fetched:
    """Fetch the missing rows of a series; return the whole series.

    - ``get(since)``: fetches the rows from a date on; all of them for None
    - ``stored``: the stored series; None: there is none
    - ``start``: the first date that is wanted; None: all history
    - ``last_closed``: the latest session that can have prices; if it is stored already, nothing is
      fetched

    The last ``OVERLAP`` stored sessions are fetched again. If they no longer agree, or if there is
    a new split or dividend, history has been rewritten and is fetched as a whole. If the answer
    then lacks a few stored sessions, these are kept, on the scale of the answer. If it lacks many,
    the answer is rejected, and the stored series is kept and marked as suspect.
    """
    since = None if start is None else nearest_time(start)
    if stored is None:
        return Fetched(name, get(since))
    asked = None if stored.asked_from is None else nearest_time(stored.asked_from)
    since = None if since is None or asked is None else min(since, asked)
    if stored.frame.empty:
        return Fetched(name, get(since))
    if since != asked:
        return _refetched(name, stored.frame, get(since))
    if stored.frame["ds"].iloc[-1] >= last_closed:
        return Fetched(name, None, unchanged=True)
    overlap = stored.frame.iloc[-OVERLAP:]
    latest = get(overlap["ds"].iloc[0])
    if agree(overlap, latest) and not _new_action(overlap, latest):
        kept = stored.frame[~stored.frame["ds"].isin(latest["ds"])]
        both = pd.concat([kept, latest], ignore_index=True)
        both = both.sort_values("ds", ignore_index=True)
        return Fetched(name, both, kept=kept["ds"])
    return _refetched(name, stored.frame, get(asked))


def agree(stored: pd.DataFrame, latest: pd.DataFrame) -> bool:
    """Return whether the answer repeats the prices and actions of the stored sessions.

    It may lack a few sessions. Volumes are revised for weeks, so they are not compared.
    """
    both = stored.merge(latest, on="ds", suffixes=("", "_new"))
    if len(stored) - len(both) > min(_LOST, len(stored) // 2):
        return False
    columns = [c for c in (*_PRICES, *_ACTIONS) if c in stored and c in latest]
    old = both[columns].to_numpy(float)
    new = both[[f"{column}_new" for column in columns]].to_numpy(float)
    return np.allclose(old, new, rtol=_TOLERANCE, atol=1e-9, equal_nan=True)


def _new_action(overlap: pd.DataFrame, latest: pd.DataFrame) -> bool:
    new = latest[latest["ds"] > overlap["ds"].iloc[-1]]
    neutral = {"splits": (0.0, 1.0), "dividends": (0.0,)}
    return any(c in new and not new[c].fillna(0.0).isin(neutral[c]).all() for c in _ACTIONS)


def _refetched(name: str, stored: pd.DataFrame, whole: pd.DataFrame) -> Fetched:
    """Return a series that was fetched as a whole, with the stored sessions that it lacks added.

    If it lacks many, it is rejected as suspect.
    """
    lost = stored[~stored["ds"].isin(whole["ds"])]
    if len(lost) > _LOST:
        return Fetched(
            name,
            None,
            f"the source now lacks {len(lost)} of the {len(stored)} stored sessions, which are "
            "kept. `forecaster ingest --refresh` replaces them by the source's",
            suspect=True,
        )
    if lost.empty:
        return Fetched(name, whole)
    lost = _on_scale_of(lost, stored, whole)
    both = pd.concat([whole, lost], ignore_index=True).sort_values("ds", ignore_index=True)
    return Fetched(name, both.reindex(columns=whole.columns))


def _on_scale_of(lost: pd.DataFrame, stored: pd.DataFrame, whole: pd.DataFrame) -> pd.DataFrame:
    """Return stored sessions at the prices that the source would give now.

    Later splits and dividends have rescaled prices, by the factor of the nearest common session.
    """
    both = stored.merge(whole, on="ds", suffixes=("", "_new")).set_index("ds")
    lost = lost.copy()
    for column in _PRICES:
        if column in lost and f"{column}_new" in both and len(both):
            factor = both[f"{column}_new"] / both[column]
            near = factor.reindex(lost["ds"], method="nearest").fillna(1.0)
            lost[column] *= near.to_numpy()
    return lost
