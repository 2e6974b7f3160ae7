"""Bringing a stored series up to date: ask for little, notice when history was rewritten."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from forecaster.ingest.source import Fetched, Stored

OVERLAP = 10  # stored sessions that are asked for again
_ACTIONS = ("dividends", "splits")
_PRICES = ("open", "high", "low", "close", "adj_close")
_TOLERANCE = 1e-5  # relative; a dividend of one part in ten thousand shows
_LOST = 5  # sessions of the stored history that a new answer may lack

Get = Callable[[pd.Timestamp | None], pd.DataFrame]


def bring_up_to_date(
    name: str, get: Get, stored: Stored | None, start, last_closed: pd.Timestamp
) -> Fetched:
    """Fetch what is missing of a series.

    ``get(since)``: the rows from a date on, None for all there are. ``last_closed``: the latest
    session that there can be prices of; when it is stored already, nothing is asked for.

    The last ``OVERLAP`` stored sessions are asked for again. When they no longer agree, or there
    is a new split or dividend, history has been rewritten and all of it is fetched anew. An answer
    that lacks sessions that are stored is not believed: what is stored stays, as suspect.
    """
    since = None if start is None else pd.Timestamp(start)
    if stored is None:
        return _whole(name, get(since))
    asked = None if stored.asked_from is None else pd.Timestamp(stored.asked_from)
    if asked is not None and (since is None or since < asked):
        return _believed(name, stored.frame, get(since))
    if stored.frame["ds"].iloc[-1] >= last_closed:
        return Fetched(name, None, unchanged=True)
    overlap = stored.frame.iloc[-OVERLAP:]
    latest = get(overlap["ds"].iloc[0])
    if agree(overlap, latest) and not _new_action(overlap, latest):
        kept = stored.frame[stored.frame["ds"] < overlap["ds"].iloc[0]]
        return _whole(name, pd.concat([kept, latest], ignore_index=True), latest)
    return _believed(name, stored.frame, get(asked))


def agree(stored: pd.DataFrame, latest: pd.DataFrame) -> bool:
    """Whether every stored session is there again, at the same prices and with the same actions.

    Volumes are revised for weeks, so they are not compared.
    """
    both = stored.merge(latest, on="ds", how="left", suffixes=("", "_new"), indicator=True)
    if not (both["_merge"] == "both").all():
        return False
    columns = [c for c in (*_PRICES, *_ACTIONS) if c in stored and c in latest]
    old = both[columns].to_numpy(float)
    new = both[[f"{column}_new" for column in columns]].to_numpy(float)
    return np.allclose(old, new, rtol=_TOLERANCE, atol=1e-9, equal_nan=True)


def _new_action(overlap: pd.DataFrame, latest: pd.DataFrame) -> bool:
    new = latest[latest["ds"] > overlap["ds"].iloc[-1]]
    neutral = {"splits": (0.0, 1.0), "dividends": (0.0,)}
    return any(c in new and not new[c].fillna(0.0).isin(neutral[c]).all() for c in _ACTIONS)


def _believed(name: str, stored: pd.DataFrame, whole: pd.DataFrame) -> Fetched:
    """A refetched series, unless it lacks what is stored."""
    lost = int((~stored["ds"].isin(whole["ds"])).sum())
    if lost > _LOST:
        return Fetched(
            name,
            None,
            f"the source now lacks {lost} of the {len(stored)} sessions that are stored; kept "
            "them. `forecaster ingest --refresh` takes the source's word",
            suspect=True,
        )
    return _whole(name, whole)


def _whole(name: str, frame: pd.DataFrame, latest: pd.DataFrame | None = None) -> Fetched:
    zone = (frame if latest is None else latest).attrs.get("timezone")
    return Fetched(name, frame, timezone=zone)
