"""What forecasts are made of, and what changed, in words and tables that a user reads."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from forecaster.series import show_time

BAND, MEDIAN, FORECAST, COMPONENT = "band", "median", "forecast", "component"
"""The kinds of rows in the frame of an :class:`Explanation`."""
TOTAL, NEW_FIT, CALENDAR = "total", "new fit", "calendar"
KEYS = ["unique_id", "step", "of", "factor"]
_SPOKEN = {"market": "the market", "networks": "its networks", NEW_FIT: "a new fit"}
_MEANINGS = {
    "own volatility": "how far its own price has moved from row to row of late; a typical move, in "
    "logarithms",
    "market": "how far prices of many series, and declared indices, move now, falls above all",
    "volume": "how much is traded, beside the month before",
    "reports": "volume 13, 26, 39 and 52 weeks before the days ahead, when companies report",
    "falls": "whether it fell or rose in the last month; falls widen the band more than rises, and "
    "each fades day by day",
    "events": "the known days to come",
    "networks": "what the neural networks of the series add to the rest",
    "spread of past errors": "above 1 where past outcomes lay further out than their bands allowed",
    "level and step": "the width of a band of this level in deviations of the forecast",
    "level": "the size of the latest values",
    "usual error": "errors of the combination, over the size of the values",
    "calendar and covariates": "what dates and covariates do to the width",
    "premium": "the expected growth of a price's mean",
    "half the variance": "by which a median lies below its mean",
    "latest season": "the value of the same step one season ago; without a season the latest one",
    "trend and smoothing": "what the components below expect, together, beyond that value",
    "running mean": "how much the mean of its own latest counts, zeros among them, lifts or lowers "
    "what the components expect",
    CALENDAR: "holidays, days of the month and the time of year",
    "covariates": "what is known of the times ahead",
    "whole numbers": "rounding to counts",
    "not below zero": "cut off at zero",
    NEW_FIT: "what the newer model changes, on the earlier date",
}
"""What each factor and each term is about, as the lines under a table say it."""
_SMALL, _LARGE = 0.005, 0.05  # changes of logarithms that are worth a word
_UNUSUAL = 0.5  # widths of the band by which a term differs from the usual one, to be named
_SHOWN = 3  # series that are shown in a notebook


class Move(NamedTuple):
    """How a series has moved since a date: shares of prices, differences of others.

    - ``net``: from then until now
    - ``times_usual``: that over its usual move; NaN where it took several rows
    - ``largest``, ``when``: the largest move from one row to the next, and the time of its end
    """

    net: float
    times_usual: float
    largest: float
    when: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What forecasts are made of, and what changed.

    - ``frame``: from :func:`.factors_of`, or :func:`.compared` where there is an earlier date
    - ``level``: of the band, in percent
    - ``step``: the step ahead that is shown
    - ``moves``: by series, how it has moved since the earlier date
    - ``seen``: by series of counts, what its rows have been, in words
    - ``since``: the earlier date; empty without one
    - ``beside``: what others say of the width at this step, by series: ``name``, volatility
      ``a_year`` in percent, ``width``
    - ``notes``: what a reader must know
    """

    frame: pd.DataFrame
    level: float = 80.0
    step: int = 1
    moves: Mapping[str, Move] = dataclasses.field(default_factory=dict)
    seen: Mapping[str, str] = dataclasses.field(default_factory=dict)
    since: str = ""
    beside: pd.DataFrame | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "\n\n".join(self.text(name) for name in self.ids[:_SHOWN])

    @property
    def ids(self) -> list[str]:
        """The series that are explained."""
        return [str(name) for name in self.frame["unique_id"].unique()]

    def of(self, name: str, step: int | None = None) -> pd.DataFrame:
        """Return the rows of one series and step, by default the one that is shown."""
        return self.frame.iloc[self._places[name, step or self.step]]

    @functools.cached_property
    def _places(self) -> dict[Any, Any]:
        return self.frame.groupby(KEYS[:2]).indices

    def sentence(self, name: str, step: int | None = None) -> str:
        """Return in plain words how wide a series' band is, what changed it, and what is usual."""
        rows = self.of(name, step)
        band: Any = rows[rows["of"] == BAND].set_index("factor")
        total, relative = band.loc[TOTAL], bool(rows["relative"].iloc[0])
        width = f"{100 * total['value']:.2f} %" if relative else f"{total['value']:.4g}"
        said = f"{name}: {'' if relative else self._median(name, rows)}"
        said += f"the {self.level:g} % band is {width} wide"
        change = total["change"] if "change" in band else np.nan
        if np.isfinite(change):
            by, way = abs(np.expm1(change)), "wider" if change > 0 else "narrower"
            same = by < _SMALL
            said += ", as wide as" if same else f", {_percent(by)} {way} than"
            said += f"{'' if relative else ' was forecast'} on {self.since}"  # for the same time
            said += self._after(name, relative=relative)
            net = self.moves[name].net if name in self.moves else 0.0
            said += "" if same else _whys(band["change"].drop(TOTAL), change, net)
        elif np.isinf(change):
            said += f" ({total['then']:.4g} wide on {self.since})"
        if total["usual"] > 0 and total["value"] > 0:
            times = total["value"] / total["usual"]
            said += f". It is {times:.2f} times as wide as usual"
            logs: Any = np.log(band["value"] / band["usual"]).drop(TOTAL) * np.sign(np.log(times))
            large = logs[logs > 0.1 * abs(np.log(times))].nlargest(2)
            if abs(np.log(times)) > _LARGE and len(large):
                falls = f"{'more' if times > 1 else 'fewer'} falls than usual"
                said += f", most by {' and '.join(_spoken(one, falls) for one in large.index)}"
        return said + "."

    def _median(self, name: str, rows: pd.DataFrame) -> str:
        """Return the median of a series in its own units, and what changed it, in words."""
        made = rows[rows["of"] == FORECAST].set_index("factor")
        if "mean" in made.index:
            return self._counts(name, made)
        terms: Any = rows[rows["of"] == MEDIAN].set_index("factor")
        said = f"the median is {terms.loc[TOTAL, 'value']:.4g}"
        change = terms.loc[TOTAL, "change"] if "change" in terms else 0.0
        if change and np.isfinite(change):
            said += self._otherwise(change)
            parts = terms["change"].drop(TOTAL)
            parts = parts[parts.abs() >= abs(change) / 10]
            parts = parts.iloc[np.argsort(-parts.abs(), kind="stable")][:3]
            said += "".join(f", {by:+.3g} through {_spoken(one)}" for one, by in parts.items())
        away = (terms["value"] - terms["usual"]).drop([TOTAL, "latest season"], errors="ignore")
        width = rows.loc[(rows["of"] == BAND) & (rows["factor"] == TOTAL), "value"].iloc[0]
        if len(away := away[away.abs() > _UNUSUAL * width]):
            one = str(away.abs().idxmax())
            value, usual, effect = terms.loc[one, ["value", "usual", "effect"]]
            why = f"the calendar's effect of {effect}" if effect else _spoken(one)
            said += f", with {value:+.3g} through {why} (usually {usual:+.3g})"
        return f"{said}; "

    def _counts(self, name: str, made: Any) -> str:
        """Return what counts have been, and are expected to be, in words."""
        value, said = made["value"], f"{self.seen[name]}: " if name in self.seen else ""
        said += f"the median is {value['median']:.4g} (band {value['low']:.4g} to "
        said += f"{value['high']:.4g}), the mean {value['mean']:.3g}"
        change = made.loc["mean", "change"] if "change" in made else 0.0
        if abs(change) >= _SMALL * value["mean"]:  # False for NaN
            said += self._otherwise(change)
        return f"{said}, and the chance of more than 0 is {_percent(value['chance of any'])}; "

    def _otherwise(self, change: float) -> str:
        way = "higher" if change > 0 else "lower"
        return f", {abs(change):.3g} {way} than was forecast on {self.since}"

    def _after(self, name: str, *, relative: bool) -> str:
        """Return the move of a series since the earlier date, in words."""
        if name not in self.moves or not (move := self.moves[name]).net:
            return ""

        def said(by: float) -> str:
            size = _percent(abs(by), 1) if relative else f"{abs(by):.3g}"
            return f"a {'fall' if by < 0 else 'rise'} of {size}"

        if np.isfinite(move.times_usual):
            return f", after {said(move.net)} ({move.times_usual:.1f} times its usual move)"
        if move.largest == move.net:
            return f", after {said(move.net)}"
        return f", after {said(move.net)} net (its largest move {said(move.largest)}, {move.when})"

    def text(self, name: str, step: int | None = None) -> str:
        """Return the sentence, and tables of factors, terms and components, of one series."""
        rows = self.of(name, step)
        relative = bool(rows["relative"].iloc[0])
        lines = [self.sentence(name, step), *self.notes, ""]
        made = rows[rows["of"] == FORECAST].set_index("factor")["value"]
        when = show_time(rows["ds"].iloc[0])
        lines.append(
            f"For {when}, from {show_time(rows['cutoff'].iloc[0])}: latest {made['latest']:.6g}, "
            f"median {made['median']:.6g}, band {made['low']:.6g} to {made['high']:.6g}"
        )
        nothing = (rows["of"] == BAND).astype(float)  # a factor of 1, or a term of 0
        idle = rows[["value", "usual"]].eq(nothing, axis=0).all(axis=1) & (rows["factor"] != TOTAL)
        if "then" in rows:
            idle &= (rows["then"] == nothing) | rows["then"].isna()
        rows = rows[~idle]
        for of, title in ((BAND, "width: factors multiply"), (MEDIAN, "median: terms add up")):
            lines += ["", *_table(rows[rows["of"] == of], title, self.since, relative=relative)]
        if len(its := rows[rows["of"] == COMPONENT]):
            lines += ["", f"{'component':<24}{'forecast':>12}{'weight':>10}"]
            lines += [
                f"{one.factor:<24}{one.value:>12.5g}{_percent(one.weight):>10}"
                for one in its.itertuples()
            ]
        if (year := made.get("a year before")) is not None:
            lines.append(f"{'a year before':<24}{year:>12.5g}")
        if self.beside is not None and len(its := self.beside[self.beside["unique_id"] == name]):
            lines += ["", f"{'beside it':<24}{'a year':>12}{'width':>10}"]
            for one in its.to_dict("records"):
                numbers = f"{one['a_year']:>10.1f} %{100 * one['width']:>8.2f} %"
                known = np.isfinite(one["width"])
                lines.append(f"{one['name']:<24}{numbers if known else ''}")
        return "\n".join([*lines, "", *_meanings(rows)])


def _percent(share: Any, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _whys(changes: pd.Series, change: float, net: float) -> str:
    """Return the factors that changed a band most, in words; ``net``: the move meanwhile."""
    parts = changes.replace([np.inf, -np.inf], np.nan).dropna()
    parts = parts[parts.abs() >= max(_SMALL, abs(change) / 10)]
    parts = parts.iloc[np.argsort(-parts.abs(), kind="stable")][:3]
    said: list[str] = []
    for way, its in (("wider", parts[parts > 0]), ("narrower", parts[parts < 0])):
        # The term of falls also changes as older moves fade, whatever the latest one was.
        falls = "recent falls" if way == "wider" else "recent rises"
        if net == 0 or (net < 0) != (way == "wider"):
            falls = f"earlier {'rises' if way == 'wider' else 'falls'} that fade"
        each = [(_percent(abs(np.expm1(by))), _spoken(one, falls)) for one, by in its.items()]
        said += [f"{by} {'' if n else way + ' '}through {one}" for n, (by, one) in enumerate(each)]
    rest = change - parts.sum()
    if said and abs(rest) >= max(_SMALL, abs(change) / 10):
        way = "wider" if rest > 0 else "narrower"
        said.append(f"{_percent(abs(np.expm1(rest)))} {way} through the rest")
    return f": {', '.join(said)}" if said else ""


def _spoken(factor: object, falls: str = "") -> str:
    return falls if factor == "falls" else _SPOKEN.get(str(factor), str(factor))


def _table(rows: pd.DataFrame, title: str, since: str, *, relative: bool) -> Iterator[str]:
    """Yield the lines of a table of factors or terms, the total last."""
    band, then = rows["of"].iloc[0] == BAND, "then" in rows
    rows = pd.concat([rows[rows["factor"] != TOTAL], rows[rows["factor"] == TOTAL]])
    last = f" {'since ' + since:>18}{'share' if band else '':>8}" if then else ""
    yield f"{title:<24}{'now':>12}{'usual':>12}{'now/usual':>11}{'percentile':>12}{last}".rstrip()
    for one in rows.to_dict("records"):
        value, usual = one["value"], one["usual"]
        scale, unit = (100, " %") if relative and (one["factor"] == TOTAL or not band) else (1, "")
        cells = [_number(scale * number, unit) for number in (value, usual)]
        cells.append(_number(value / usual if band and usual else np.nan, digits=3))
        rank = f"{one['percentile']:.0f}" if np.isfinite(one["percentile"]) else ""
        numbers = f"{cells[0]:>12}{cells[1]:>12}{cells[2]:>11}"
        line = f"{one['factor']:<24}{numbers}{rank:>12}"
        if then and np.isfinite(one["change"]):
            by = f"{scale * one['change']:+.3f}{unit}"
            by = f"{100 * np.expm1(one['change']):+.1f} %" if band else by
            share = _percent(one["share"]) if abs(one["share"]) >= _SMALL else ""
            line += f" {by:>18}{share:>8}"
        yield line.rstrip()


def _meanings(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line on each word of the tables of one series."""
    yield "usual: the median over every fourth row of a year; each is its own and need not multiply"
    yield "a usual move: the median size of moves from row to row, two thirds of their deviation"
    yield "share: of the change of the band, where it is 2 % or more"
    shown = [name for name in dict.fromkeys(rows["factor"]) if name in _MEANINGS]
    yield from (f"{name}: {_MEANINGS[name]}" for name in shown)


def _number(value: float, unit: str = "", digits: int = 4) -> str:
    return f"{value:.{digits}g}{unit}" if np.isfinite(value) else ""
