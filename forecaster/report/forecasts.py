"""Build the page of forecasts: for each series its median, its bands, and what changed."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from forecaster.files import Home, run_name
from forecaster.forecasting import FORECAST_BY, RISE, Explanation, bounds_of, counted
from forecaster.ingest import Groups
from forecaster.record import COLUMN, earlier, record_of
from forecaster.report import html
from forecaster.report.html import Json, as_numbers, limits, pack, positions, rounded
from forecaster.report.numbers import RUNGS, UNGROUPED
from forecaster.series import Finding, Panel, findings_in_words, show_time

if TYPE_CHECKING:
    from forecaster.pipeline import Prediction

HISTORY = 250
"""Maximum number of rows in a series' figure."""
LAST, WEEK = "last", "week"
_A_WEEK, _TOO_OLD = np.timedelta64(7, "D"), np.timedelta64(21, "D")
_STEPS = 6
_MOST_SAID = 600  # sentences on bands; of more series only the first step has one
_TABLE = (
    "<p>Click a heading to sort, a row to open the series. The search also finds {what}.</p>"
    "<div class='controls' id='choices'></div><div id='table'></div>"
)
_FACTORS = (
    "A band is a product of factors, which stand below a series; “forecaster explain” shows more."
)
_ONE = (
    "<p id='one-help'>Choose a series in the table above, or in any figure by a click.</p>"
    "<div id='one' tabindex='-1'></div>"
)


class Changes(NamedTuple):
    """Changes since an earlier forecast of each series, at the same steps; NaN if there is none.

    - ``when``: the origin of these forecasts, or the first and the last origin, as text
    - ``origin``: the origin of each series, as numbers; None for a series without one
    - ``width`` (series, step): the relative increase of the width of the band
    - ``median`` (series, step): the increase of the median, for prices as a share of the price from
      which the earlier forecast started, for other series in their units
    """

    when: str
    origin: list[int | None]
    width: np.ndarray
    median: np.ndarray


@dataclasses.dataclass(frozen=True)
class Forecasts:
    """The forecasts to show.

    - ``panel``, ``frame``: the series, and the result of :func:`forecaster.predict`
    - ``model``, ``levels``: the frame's column of medians, and its bands in percent
    - ``run``, ``source``: the name of the run, and the source of the series
    - ``findings``: what a user should know of the series
    - ``record``: earlier forecasts of the source, see :class:`forecaster.record.Record`; None:
      there are none to compare with
    - ``groups``: the group of each series, such as its sector
    - ``fitted``: what was found in the series at the fit, in words
    - ``explained``: what the bands are made of; None: it is not shown
    """

    panel: Panel
    frame: pd.DataFrame
    model: str
    levels: tuple[float, ...]
    run: str
    source: str
    findings: Sequence[Finding] = ()
    record: pd.DataFrame | None = None
    groups: Mapping[str, str] | None = None
    fitted: Sequence[str] = ()
    explained: Explanation | None = None

    @property
    def of_prices(self) -> bool:
        """Whether prices are forecast; other series are shown in their units."""
        return self.panel.target != "y"

    @property
    def level(self) -> float:
        """The level of the band whose width is quoted: the one nearest to 80 %."""
        return min(self.levels, key=lambda level: abs(level - 80))

    @property
    def ids(self) -> list[str]:
        """The series, in the order of the frame."""
        return [str(name) for name in self.frame["unique_id"].unique()]

    @property
    def rungs(self) -> list[str] | None:
        """The basis (rung) of each series' forecast; None without such a column."""
        if FORECAST_BY not in self.frame:
            return None
        return [str(rung) for rung in self.frame.drop_duplicates("unique_id")[FORECAST_BY]]

    @property
    def horizon(self) -> int:
        """The number of steps ahead."""
        return len(self.frame) // len(self.ids)

    @property
    def steps(self) -> list[int]:
        """The steps ahead that can be chosen for the table."""
        return sorted({int(n) for n in np.linspace(1, self.horizon, _STEPS).round()})

    def column(self, name: str) -> np.ndarray:
        """Return a column of the frame, (series, horizon)."""
        return self.frame[name].to_numpy(float).reshape(len(self.ids), -1)

    def at_steps(self, name: str) -> np.ndarray:
        """Return a column at the steps of the table, (series, step)."""
        return self.column(name)[:, [step - 1 for step in self.steps]]

    @functools.cached_property
    def known(self) -> dict[str, pd.Series]:
        """The latest rows of each series by time, in the units of the forecast."""
        from forecaster.forecasting import price_factor

        panel, known = self.panel, {}
        values = panel.channel(panel.target) * price_factor(panel)[:, None]
        for name in self.ids:
            row = panel.ids.index(name)
            seen = panel.mask[row]
            known[name] = pd.Series(values[row, seen], panel.times[seen]).iloc[-HISTORY:]
        return known

    @functools.cached_property
    def latest(self) -> pd.DataFrame:
        """Each series' latest ``value``, its time, ``origin``, and the ``base`` of widths.

        For prices the base is the latest value; other series are shown in their own units.
        """
        latest = pd.DataFrame(
            [(part.index[-1], part.iloc[-1]) for part in self.known.values()],
            index=self.ids, columns=["origin", "value"],
        )  # fmt: skip
        value = latest["value"]
        return latest.assign(base=value.where(value > 0) if self.of_prices else 1.0)

    @property
    def width(self) -> np.ndarray:
        """The widths of the quoted band, of prices as shares of the latest, (series, step)."""
        low, high = map(self.at_steps, bounds_of(self.model, self.level))
        return (high - low) / self.latest["base"].to_numpy()[:, None]

    @functools.cached_property
    def changes(self) -> dict[str, Changes]:
        """Changes since the previous forecasts (``LAST``), and a week's (``WEEK``) if others."""
        (low, high), record = bounds_of(COLUMN, self.level), self.record
        kind = self.latest["origin"].dtype.kind
        if record is None or low not in record or record["ds"].dtype.kind != kind:
            return {}
        record = record[record["step"].isin(self.steps) & record[low].notna()]
        origins = dict(zip(self.ids, self.latest["origin"], strict=True))
        found = {LAST: earlier(record, origins, np.timedelta64(1, "ns") if kind == "M" else 1)}
        if kind == "M":
            week = earlier(record, origins, _A_WEEK)
            # map() on a categorical returns a categorical, which cannot be subtracted.
            age = week["unique_id"].astype(str).map(self.latest["origin"]) - week["origin"]
            found[WEEK] = week[(age <= _TOO_OLD).to_numpy()]
            if found[WEEK].index.equals(found[LAST].index):
                del found[WEEK]
        return {
            name: _changes_since(rows.assign(width=rows[high] - rows[low]), self)
            for name, rows in found.items()
            if len(rows)
        }


def forecasts_of(
    home: Home,
    made: "Prediction",
    levels: Sequence[float],
    groups: Groups | None = None,
    *,
    explained: Explanation | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Forecasts:
    """Return a prediction with the record of its source, for :func:`build_forecasts`.

    - ``levels``: levels of the bands to show, in percent
    - ``groups``: groups of the series, such as sectors
    - ``explained``: what the bands are made of, if that is to be shown
    - ``on_notice(message)``: called for each file of the record that cannot be read
    """
    source = str(made.model.provenance.get("source"))
    record = record_of(home, source)
    for path, why in record.damaged.items():
        if on_notice is not None:
            on_notice(f"Warning: {path}: left out, since it cannot be read: {why}")
    return Forecasts(
        made.panel, made.frame, made.model.config.column, tuple(levels), run_name(made.run), source,
        made.findings, record.frames.get(source),
        groups.of(list(made.panel.ids)) if groups else None,
        made.model.provenance.get("findings", ()), explained,
    )  # fmt: skip


def build_forecasts(made: Forecasts, path: Path) -> Path:
    """Write forecasts as one HTML file that opens offline; return its path.

    Raises UsageError if the library that draws figures is missing.
    """
    return html.write_page(
        path,
        title=f"Forecasts of {len(made.ids)} series",
        heading="Forecasts",
        lead=_lead(made),
        notices=list(_notices(made)),
        cards=list(_cards(made)),
        sections=list(_sections(made)),
        data=_data(made),
        script="forecasts.js",
    )


def _changes_since(rows: pd.DataFrame, made: Forecasts) -> Changes:
    """Return the changes since earlier forecasts, which are rows of the record."""
    latest = made.latest
    width, median = (
        rows.pivot_table(
            index="unique_id", columns="step", values=name, dropna=False, observed=True
        )
        .reindex(index=latest.index, columns=made.steps)
        .to_numpy(float)
        for name in ("width", COLUMN)
    )
    each = rows.drop_duplicates("unique_id").set_index("unique_id").reindex(latest.index)
    then = now = np.ones((len(latest), 1))
    if made.of_prices:  # which may have been adjusted since then
        then = each[["value"]].to_numpy(float)
        same = [made.known[str(name)].get(time, np.nan) for name, time in each["origin"].items()]
        now = np.array(same, float)[:, None]
    width = width / then
    origins = each["origin"].dropna()
    return Changes(
        _span(origins),
        [None if pd.isna(t) else as_numbers(pd.Index([t]))[0] for t in each["origin"]],
        made.width / np.where(width > 0, width, np.nan) - 1,
        made.at_steps(made.model) / now - median / then,
    )


def _span(times: pd.Series) -> str:
    """Return the first and the last of some times as text, or the only one."""
    first, last = times.min(), times.max()
    return show_time(last) if first == last else f"{show_time(first)} to {show_time(last)}"


def _lead(made: Forecasts) -> str:
    when = _span(made.latest["origin"])
    ahead = "one step" if made.horizon == 1 else f"1 to {made.horizon} steps"
    by = f" ({counted(made.rungs)})" if made.rungs else f" by {made.model}"
    return f"{len(made.ids)} series{by}, {ahead} ahead of {when}. Run {made.run}."


def _notices(made: Forecasts) -> Iterator[str]:
    if made.source == "simulated":
        yield "These prices are simulated, not real."
        return
    for said in findings_in_words(made.findings, len(made.ids)).values():
        yield said[0].upper() + said[1:]


def _cards(made: Forecasts) -> Iterator[html.Card]:
    """Yield the headlines, which are about the last step."""
    if made.of_prices:
        width = made.width[:, -1]
        ahead = "one step ahead" if made.horizon == 1 else f"{made.horizon} steps ahead"
        yield html.Card(
            f"{np.nanmedian(width):.1%}",
            f"median width of {made.level:g}\N{NO-BREAK SPACE}% bands",
            f"{ahead}; from {100 * np.nanmin(width):.1f} to {np.nanmax(width):.1%}",
        )
    for then in list(made.changes.values())[:1]:
        change = then.width[:, -1]
        if np.isfinite(change).any():
            yield html.Card(
                f"{np.nanmedian(change):+.1%}".replace("-", "\N{MINUS SIGN}"),
                "median change of width",
                f"since the forecasts of {then.when}",
            )
    kinds = {"late": "stale"}
    if made.of_prices:
        kinds |= {"jumped": "jumped on the latest day", "frozen": "with a price that stands still"}
    counts = {kind: sum(one.kind == kind for one in made.findings) for kind in kinds}
    notes = [f"{counts[kind]} {said}" for kind, said in kinds.items()]
    yield html.Card(str(sum(counts.values())), "with data to check", ", ".join(notes))


def _sections(made: Forecasts) -> Iterator[html.Section]:
    what = "“late”, “jumped” or “frozen” data" if made.of_prices else "“late” data"
    what = f"groups, and {what}" if made.groups else what
    yield html.Section("every", "Every series", _TABLE.format(what=what))
    yield html.Section("series", "One series", _ONE)
    if made.of_prices or made.changes:
        yield _glance(made)
    if made.groups:
        yield html.Section("groups", "Groups", "<div id='group-table'></div>")
    yield html.Section("reading", "How to read this", _reading(made))


def _glance(made: Forecasts) -> html.Section:
    """Return the section on all series: for prices figures, and what changed most."""
    level, figures = f"{made.level:g}\N{NO-BREAK SPACE}%", ""
    if made.of_prices:
        figures = html.figure(
            "chances", "Chance of a rise, and width",
            "Each is a series: further right a rise is likelier, further up the band is wider.",
        )  # fmt: skip
        if made.changes:
            figures += html.figure(
                "moves", "What changed",
                f"Right of zero the median has risen; above zero the {level} band has widened.",
            )  # fmt: skip
    lists = "<div class='panels' id='most'></div>" if made.changes else (
        "<p class='note'>The record has no earlier forecast of these series to compare with.</p>"
    )  # fmt: skip
    return html.Section(
        "changes",
        "What changed" if made.changes else "All at a glance",
        f"<div class='controls' id='more-choices'></div><div class='panels'>{figures}</div>{lists}",
    )


def _reading(made: Forecasts) -> str:
    of, rise = "in the units of the series", ""
    if made.of_prices:
        of = "as shares of its latest price"
        rise = (
            "The chance of a rise is the probability of a value above the latest one. Near 50 % "
            "the direction is unknown, as it usually is for prices."
        )
    return html.points([
        f"Widths are those of the {made.level:g} % band, {of}: the outcome should lie in the band "
        f"{made.level:g} times out of 100. Wider means less sure, not better or worse.",
        *([rise] if rise else []),
        "Changes are relative to an earlier forecast in the record, at the same number of steps "
        "ahead, with its prices adjusted for later splits and dividends. Another run may have made "
        "that forecast.",
        *([RUNGS] if made.rungs else []),
        *(f"When the model was fitted: {text}." for text in made.fitted),
        *([_FACTORS] if made.explained is not None else []),
        "“forecaster scorecard” scores past forecasts against the outcomes.",
    ])  # fmt: skip


def _data(made: Forecasts) -> Json:
    """Return the data that ``forecasts.js`` draws."""
    levels = sorted(made.levels, reverse=True)
    names = [made.model, *(name for level in levels for name in bounds_of(made.model, level))]
    shown = np.stack([made.column(name) for name in names], axis=1)  # (series, column, horizon)
    known = made.known
    times = pd.Index(np.unique(np.concatenate([part.index.to_numpy() for part in known.values()])))
    ahead = made.frame["ds"].to_numpy().reshape(len(made.ids), -1)
    return {
        "prices": made.of_prices,
        "dated": pd.api.types.is_datetime64_any_dtype(times),
        "levels": [f"{level:g}" for level in levels],
        "level": f"{made.level:g}",
        "steps": made.steps,
        **_columns(made),
        "compared": {
            name: {
                "when": then.when,
                "origin": then.origin,
                "width": rounded(then.width.T),
                "median": rounded(then.median.T),
            }
            for name, then in made.changes.items()
        },
        "week": WEEK,
        "explained": None if made.explained is None else _explained(made, made.explained),
        "times": as_numbers(times),
        "series": {
            name: _series(shown[row], known[name], times, ahead[row])
            for row, name in enumerate(made.ids)
        },
    }


def _columns(made: Forecasts) -> dict[str, Json]:
    """Return what the table shows of each series, of some columns by step."""
    latest, median = made.latest, made.at_steps(made.model)
    if made.of_prices:
        median = median / latest[["base"]].to_numpy() - 1
    said: dict[str, list[str]] = {name: [] for name in made.ids}
    for one in made.findings:
        said.get(one.name, []).append(f"{one.kind} ({one.said})" if one.said else one.kind)
    return {
        "ids": made.ids,
        "groups": [made.groups.get(name, UNGROUPED) for name in made.ids] if made.groups else None,
        "ungrouped": UNGROUPED,
        "rungs": made.rungs,
        "value": rounded(latest["value"].to_numpy()),
        "origin": as_numbers(pd.Index(latest["origin"])),
        "said": ["; ".join(said[name]) for name in made.ids],
        "width": rounded(made.width.T),
        "median": rounded(median.T),
        "rise": rounded(made.at_steps(RISE).T, 4) if made.of_prices else None,
    }


def _explained(made: Forecasts, explained: Explanation) -> Json:
    """Return the factors of each series' band, and a sentence on it, by step shown.

    Each factor has a name, its size over the usual one, its percentile, and its change; the total
    comes last.
    """
    frame, rows = explained.frame, dict[str, list[Json]]()
    frame = frame[(frame["of"] == "band") & frame["step"].isin(made.steps)]
    frame = frame.sort_values("factor", key=lambda its: its == "total", kind="stable")
    by = np.expm1(frame["change"]) if explained.since else np.nan
    frame = frame.assign(ratio=frame["value"] / frame["usual"], by=by)
    columns = ["ratio", "percentile", "by"]
    for (name, _), own in frame.groupby(["unique_id", "step"], sort=False):
        numbers = [rounded(own[column].to_numpy(float), 4) for column in columns]
        rows.setdefault(str(name), []).append(
            [*map(list, zip(own["factor"], *numbers, strict=True))]
        )
    every = made.steps if len(made.ids) * len(made.steps) <= _MOST_SAID else made.steps[:1]
    said = [
        [explained.sentence(n, k) if n in rows and k in every else "" for k in made.steps]
        for n in made.ids
    ]
    return {"since": explained.since, "said": said, "rows": rows}


def _series(parts: np.ndarray, known: pd.Series, times: pd.Index, ahead: np.ndarray) -> Json:
    """Return a series' latest values and forecasts, packed between the two numbers of ``range``.

    - ``parts`` (column, horizon): the medians and bounds of the series
    - ``known``: its latest values by time
    - ``times``: the times of all series
    - ``ahead``: the times of the forecasts
    """
    values = known.to_numpy(float)
    between = limits(np.append(values, parts))
    return {
        "at": positions(known.index, times),
        "range": between,
        "y": pack(values, *between, 3),
        "ahead": as_numbers(pd.Index(ahead)),
        "forecast": [pack(part, *between, 3) for part in parts],
    }
