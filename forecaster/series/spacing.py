"""How far apart the rows of a series are, and whether those of another span are so, too."""

import numpy as np
from jaxtyping import Float, Shaped

_LATEST = 61  # rows: of fewer, too many gaps might be weekends and holidays
_FEWEST = 3  # gaps; one or two might be a weekend
_ALIKE = 1.25  # times as far; months differ by a ninth
_COMMON = 0.1  # of the gaps: of weekdays, most are a day; of two rows a day, half are the shorter

_UNITS = {86_400: "day", 3_600: "hour", 60: "minute", 1: "second"}


def spacing_of(times: Shaped[np.ndarray, " row"]) -> float:
    """The usual gap between a series' latest rows: in seconds, or in the whole numbers that count.

    ``times``: sorted, unique. It is the median, of the two in the middle the shorter, so one of the
    gaps. NaN for less than two rows.
    """
    gaps = _gaps(times)
    return float(np.percentile(gaps, 50, method="lower")) if len(gaps) else float("nan")


def spaced_otherwise(times: Shaped[np.ndarray, " row"], spacing: float) -> str | None:
    """In words, how a series' latest rows are spaced, where that is not the usual gap of another.

    ``spacing``: that gap, of :func:`spacing_of`. None where they are alike, or nothing is known:
    gaps as of weekends, nights and holidays do not matter, as long as the usual one occurs.
    """
    gaps, now = _gaps(times), spacing_of(times)
    if len(gaps) < _FEWEST or not np.isfinite(spacing) or 1 / _ALIKE < now / spacing < _ALIKE:
        return None
    as_usual = (gaps > spacing / _ALIKE) & (gaps < spacing * _ALIKE)
    if as_usual.mean() >= _COMMON:
        return None
    dated = times.dtype.kind == "M"
    return (
        f"its rows are {_in_words(now, dated=dated)} apart, those that the model was fitted on "
        f"{_in_words(spacing, dated=dated)}"
    )


def _gaps(times: Shaped[np.ndarray, " row"]) -> Float[np.ndarray, " gap"]:
    """Between the latest rows, as earlier ones may be further apart."""
    gaps = np.diff(times[-_LATEST:])
    if gaps.dtype.kind == "m":
        return gaps.astype("timedelta64[ns]").astype(np.int64) / 1e9
    return gaps.astype(float)


def _in_words(spacing: float, *, dated: bool) -> str:
    if not dated:
        return f"{spacing:g}"
    unit = next((unit for unit in _UNITS if spacing >= unit), 1)
    count = f"{spacing / unit:.3g}"
    return f"{count} {_UNITS[unit]}{'' if count == '1' else 's'}"
