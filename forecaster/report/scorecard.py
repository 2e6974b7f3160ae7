"""The page that scores past forecasts against the outcomes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from forecaster.errors import UsageError, listed
from forecaster.forecasting import bounds_of
from forecaster.record import COLUMN, FEW, Scorecard, alarm_lines, forecast_alarms, named
from forecaster.report import html
from forecaster.report.html import Json, as_numbers, columns, limits, pack
from forecaster.series import show_time

_FANS = 12
_COUNTED = (
    "Forecasts are compared with the stored price of their day, in the units in which they were "
    "made: forecasts are adjusted for later splits and dividends.",
    "“Unchanged” is the value at the time of the forecast, with the bands of a random walk whose "
    "steps are as wide as all earlier ones. The CRPS is over the quantiles that were forecast.",
    "Errors are in units of the series' usual change over the same number of steps, so that no "
    "series outweighs another. Below 1 is better than “unchanged”.",
    "If the same run forecast from the same day more than once, the last of these forecasts counts "
    "that was made before the outcome. Forecasts that were made after it do not count. Errors of "
    "forecasts from the same day, or from days close together, are correlated: many outcomes from "
    "few days say little.",
)


def build_scorecard(card: Scorecard, path: Path) -> Path:
    """Write a scorecard as one HTML file that opens offline; return its path.

    Raises UsageError if the library that draws figures is missing, and for sources of dates and of
    whole numbers, which one page cannot show.
    """
    if card.rows["ds"].dtype == object:
        raise UsageError(
            "a page of several sources: their times are dates in some and whole numbers in others; "
            f"name one, by --source: {listed(sorted(card.rows['source'].unique()))}"
        )
    total = card.total()
    runs = sorted({named(str(run)) for run in card.rows["run"].unique()})
    first, last = (
        show_time(time) for time in (card.rows["origin"].min(), card.rows["origin"].max())
    )
    when = f"on {last}" if first == last else f"from {first} to {last}"
    return html.write_page(
        path,
        title="Scorecard of forecasts",
        heading="How have the forecasts done?",
        lead=f"{total['forecasts']:.0f} forecasts of {card.rows['series'].nunique()} series, "
        f"made {when} by {', '.join(runs)}.",
        notices=[
            *(["These prices are simulated, not real."] if card.simulated else []),
            *alarm_lines(forecast_alarms(card)),
        ],
        cards=list(_cards(card)),
        sections=list(_sections(card)),
        data=_data(card),
        script="scorecard.js",
    )


def _cards(card: Scorecard) -> Iterator[html.Card]:
    total, known = card.total(), len(card.known)
    few = "too few days to judge by" if card.origins < FEW else ""
    yield html.Card(f"{known:,}", "outcomes so far", f"{card.count('open'):,} more are open")
    for level in card.levels:
        if np.isfinite(held := total[f"held-{level}"]):
            label = f"covered by bands of {level}\N{NO-BREAK SPACE}%"
            yield html.Card(f"{held:.1%}", label, few)
    for score, name in (("crps", "CRPS"), ("mae", "absolute error")):
        if np.isfinite(total[score]):
            yield html.Card(f"{total[score]:.3f}", f"{name}, “unchanged” = 1", few)


def _sections(card: Scorecard) -> Iterator[html.Section]:
    lines = [line.replace("`", "") for line in card.lines()]
    yield html.Section("verdict", "In short", html.points(lines, "<ul class='verdict'>"))
    if len(card.known):
        figures = html.figure(
            "by-origin", "By the day they were made",
            "Below 1 the forecasts from that day were better than “unchanged”.",
        ) + html.figure(
            "by-step", "Coverage of the bands, by steps ahead",
            "Each line should lie on the thin line at its band's level.",
        )  # fmt: skip
        yield html.Section("when", "When and how far", f"<div class='panels'>{figures}</div>")
    yield html.Section("every", "Every series", "<div id='table'></div>")
    yield html.Section("series", "One series", "<div id='one' tabindex='-1'></div>")
    yield html.Section("counted", "How it is counted", html.points(_COUNTED))


def _data(card: Scorecard) -> Json:
    """Return the data that ``scorecard.js`` draws."""
    dated = pd.api.types.is_datetime64_any_dtype(card.rows["ds"])
    known = card.known
    by_origin, by_step = (
        Scorecard(known, card.simulated).table(by) if len(known) else pd.DataFrame()
        for by in ("origin", "step")
    )
    series = card.table()
    return {
        "dated": dated,
        "levels": card.levels,
        "table": columns(series.rename(columns={"by": "id"})),
        "origins": columns(by_origin),
        "steps": columns(by_step),
        "series": _every_series(card),
    }


def _every_series(card: Scorecard) -> dict[str, Json]:
    """Return the data that is drawn for each series, see :func:`_series`."""
    rows = card.rows[np.isfinite(card.rows["scale"])]
    last = rows.sort_values("made", kind="stable")
    last = last.drop_duplicates(["series", "origin", "ds"], keep="last")
    last = last.sort_values(["series", "origin", "ds"])
    bounds = [name for level in card.levels[::-1] for name in bounds_of(COLUMN, level)]
    values = last[["value", "y", COLUMN, *bounds]].to_numpy(float)
    scale, origin, ds = (last[name].to_numpy() for name in ("scale", "origin", "ds"))
    code, names = pd.factorize(last["series"])
    begins = np.append(np.searchsorted(code, np.arange(len(names))), len(code))
    drawn: dict[str, Json] = {str(name): {"from": []} for name in card.rows["series"].unique()}
    for name, begin, end in zip(names, begins[:-1], begins[1:], strict=True):
        part = slice(begin, end)
        drawn[str(name)] = _series(values[part], scale[part], origin[part], ds[part])
    return drawn


def _series(values: np.ndarray, scale: np.ndarray, origin: np.ndarray, ds: np.ndarray) -> Json:
    """Return a series' latest forecasts and their outcomes, in the units of the last forecast.

    ``from``, ``steps``: each forecast's origin and number of steps; ``ds``: the times that were
    forecast; ``parts``: values at the origins, outcomes, medians and bounds, each packed between
    the two numbers of ``range``.

    Arguments, sorted by origin and time: ``values`` (row, part), and for each row the ``scale`` of
    its units, its ``origin`` and its time ``ds``.
    """
    origins, begins = np.unique(origin, return_index=True)
    first = begins[-_FANS:][0]
    shown = values[first:] * (scale[-1] / scale[first:, None])
    if not np.isfinite(shown).any():
        return {"from": []}
    between = limits(shown)
    return {
        "range": between,
        "from": as_numbers(pd.Index(origins[-_FANS:])),
        "steps": np.diff(np.append(begins[-_FANS:], len(origin))).tolist(),
        "ds": as_numbers(pd.Index(ds[first:])),
        "parts": [pack(part, *between, 3) for part in shown.T],
    }
