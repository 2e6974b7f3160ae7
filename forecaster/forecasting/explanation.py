"""What forecasts are made of, and what changed, in words and tables that a user reads."""

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from forecaster.series import show_time

Part: TypeAlias = dict[str, Any]
"""A row of the frame of an :class:`Explanation`, by column."""
BAND, MEDIAN, FORECAST, COMPONENT = "band", "median", "forecast", "component"
"""The kinds of rows in the frame of an :class:`Explanation`."""
TOTAL, NEW_FIT, CALENDAR = "total", "new fit", "calendar"
KEYS = ["unique_id", "step", "of", "factor"]
_SPOKEN = {
    "own volatility": "its own volatility", "market": "the market", "networks": "its network",
    "spread of past errors": "the spread of its past errors", "level": "its level",
    "usual error": "its usual error", NEW_FIT: "a new fit",
}  # fmt: skip
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
# Widths of the band by which a term differs from the usual one, to be named, and the calendar's.
_UNUSUAL, _DAY = 0.5, 0.1
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

    def _parts(self, name: str, step: int | None) -> dict[str, dict[str, Part]]:
        """Return the rows of one series and step, by what they are of and by factor."""
        found = defaultdict[str, dict[str, Part]](dict)
        rows: Any = self.of(name, step).to_dict("records")
        for row in rows:
            found[row["of"]][row["factor"]] = row
        return found

    def sentence(self, name: str, step: int | None = None) -> str:
        """Return in plain words how wide a series' band is, what changed it, and what is usual."""
        made = self._parts(name, step)
        band = made[BAND]
        total = band.pop(TOTAL)
        value, usual, relative = total["value"], total["usual"], total["relative"]
        width = f"{100 * value:.2f} %" if relative else f"{value:.4g}"
        said = f"{name}: {'' if relative else self._median(name, made, value)}"
        said += f"the {self.level:g} % band is {width} wide"
        change = total.get("change", np.nan)
        if change == 0 and name not in self.moves:
            said += f", as before: it has no row after {show_time(total['cutoff'])}"
        elif np.isfinite(change):
            by, way = abs(np.expm1(change)), "wider" if change > 0 else "narrower"
            same = by < _SMALL
            said += ", as wide as" if same else f", {_percent(by)} {way} than"
            said += f"{'' if relative else ' was forecast'} on {self.since}"  # for the same time
            said += self._after(name, relative=relative)
            net = self.moves[name].net if name in self.moves else 0.0
            said += "" if same else _whys(band, change, net)
        elif np.isinf(change):
            said += f" ({total['then']:.4g} wide on {self.since})"
        return f"{said}{_beside_usual(band, value / usual) if usual > 0 and value > 0 else ''}."

    def _median(self, name: str, made: Mapping[str, dict[str, Part]], width: float) -> str:
        """Return the median of a series in its own units, and what changed it, in words."""
        if "mean" in made[FORECAST]:
            return self._counts(name, made[FORECAST])
        terms = made[MEDIAN]
        total = terms.pop(TOTAL)
        said, change = f"the median is {total['value']:.4g}", total.get("change", 0.0)
        if change and np.isfinite(change):
            said += self._otherwise(change)
            each = _largest(terms, abs(change) / 10)
            said += "".join(f", {one['change']:+.3g} through {_spoken(one)}" for one in each)
        away = {
            abs(by): one
            for one in terms.values()
            if np.isfinite(by := one["value"] - one["usual"]) and one["factor"] != "latest season"
        }
        # The largest one, and a day of the calendar beside it.
        for by in sorted(away, reverse=True):
            one = away[by]
            least = _DAY if one["effect"] else _UNUSUAL if by == max(away) else np.inf
            if by > least * width:
                said += f", with {one['value']:+.3g} through {_spoken(one)}"
                said += f" (usually {one['usual']:+.3g})"
        return f"{said}; "

    def _counts(self, name: str, made: Mapping[str, Part]) -> str:
        """Return what counts have been, and are expected to be, in words."""
        value = {factor: row["value"] for factor, row in made.items()}
        said = f"{self.seen[name]}: " if name in self.seen else ""
        said += f"the median is {value['median']:.4g} (band {value['low']:.4g} to "
        said += f"{value['high']:.4g}), the mean {value['mean']:.3g}"
        change = made["mean"].get("change", 0.0)
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
        made = self._parts(name, step)
        total, value = made[BAND][TOTAL], {k: one["value"] for k, one in made[FORECAST].items()}
        lines = [self.sentence(name, step), *self.notes, ""]
        lines.append(
            f"For {show_time(total['ds'])}, from {show_time(total['cutoff'])}: "
            f"latest {value['latest']:.6g}, median {value['median']:.6g}, "
            f"band {value['low']:.6g} to {value['high']:.6g}"
        )
        shown = [[one for one in made[of].values() if not _idle(one)] for of in (BAND, MEDIAN)]
        for rows, title in zip(
            shown, ("width: factors multiply", "median: terms add up"), strict=True
        ):
            lines += ["", *_table(rows, title, self.since)]
        if its := made[COMPONENT].values():  # all, so that the weights add up
            lines += ["", f"{'component':<24}{'forecast':>12}{'weight':>10}"]
            lines += [
                f"{one['factor']:<24}{one['value']:>12.5g}{_percent(one['weight']):>10}"
                for one in its
            ]
        if (year := value.get("a year before")) is not None:
            lines.append(f"{'a year before':<24}{year:>12.5g}")
        lines += self._others(name)
        return "\n".join([*lines, "", *_meanings(one["factor"] for rows in shown for one in rows)])

    def _others(self, name: str) -> Iterator[str]:
        """Yield the lines of what others say of the width."""
        if self.beside is None or not len(its := self.beside[self.beside["unique_id"] == name]):
            return
        yield f"\n{'beside it':<24}{'a year':>12}{'width':>10}"
        for one in its.to_dict("records"):
            numbers = f"{one['a_year']:>10.1f} %{100 * one['width']:>8.2f} %"
            yield f"{one['name']:<24}{numbers if np.isfinite(one['width']) else ''}"


def _percent(share: Any, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _largest(parts: Mapping[str, Part], least: float) -> list[Part]:
    """Return the three parts that changed most, and by at least as much, the largest first."""
    known = [one for one in parts.values() if least <= abs(one["change"]) < np.inf]
    return sorted(known, key=lambda one: -abs(one["change"]))[:3]


def _whys(band: Mapping[str, Part], change: float, net: float) -> str:
    """Return the factors that changed a band most, in words; ``net``: the move meanwhile."""
    least = max(_SMALL, abs(change) / 10)
    parts, said = _largest(band, least), list[str]()
    for way, sign in (("wider", 1), ("narrower", -1)):
        # The term of falls also changes as older moves fade, whatever the latest one was.
        falls = "recent falls" if way == "wider" else "recent rises"
        if net == 0 or (net < 0) != (way == "wider"):
            falls = f"earlier {'rises' if way == 'wider' else 'falls'} that fade"
        for n, one in enumerate(one for one in parts if sign * one["change"] > 0):
            by = _percent(abs(np.expm1(one["change"])))
            said.append(f"{by} {'' if n else way + ' '}through {_spoken(one, falls)}")
    rest = change - sum(one["change"] for one in parts)
    if said and abs(rest) >= least:
        way = "wider" if rest > 0 else "narrower"
        said.append(f"{_percent(abs(np.expm1(rest)))} {way} through the rest")
    return f": {', '.join(said)}" if said else ""


def _beside_usual(band: Mapping[str, Part], times: float) -> str:
    """Return how wide a band is beside the usual one, and why; ``times``: as wide as that."""
    said, log = f". It is {times:.2f} times as wide as usual", np.log(times)
    away = {
        name: np.log(one["value"] / one["usual"]) * np.sign(log)
        for name, one in band.items()
        if one["value"] > 0 and one["usual"] > 0
    }
    large = [name for name in away if away[name] > 0.1 * abs(log)]
    if abs(log) <= _LARGE or not large:
        return said
    falls = f"{'more' if times > 1 else 'fewer'} falls than usual"
    most = sorted(large, key=lambda name: -away[name])[:2]
    return f"{said}, most by {' and '.join(_spoken(band[name], falls) for name in most)}"


def _spoken(part: Part, falls: str = "") -> str:
    """Return the name of a factor or a term in a sentence; ``falls``: that of these."""
    name: str = part["factor"]
    if part.get("effect"):
        return f"the calendar's effect of {part['effect']}"
    return falls if name == "falls" else _SPOKEN.get(name, name)


def _idle(part: Part) -> bool:
    """Return whether a part is a factor of 1, or a term of 0: now, usually and then."""
    nothing, then = float(part["of"] == BAND), part.get("then", np.nan)
    now = part["value"] == part["usual"] == nothing and part["factor"] != TOTAL
    return now and (np.isnan(then) or then == nothing)


def _table(rows: Sequence[Part], title: str, since: str) -> Iterator[str]:
    """Yield the lines of a table of factors or terms, the total last."""
    band, then, relative = (rows[0]["of"] == BAND, "then" in rows[0], rows[0]["relative"])
    last = f" {'since ' + since:>18}{'share' if band else '':>8}" if then else ""
    yield f"{title:<24}{'now':>12}{'usual':>12}{'now/usual':>11}{'percentile':>12}{last}".rstrip()
    for one in sorted(rows, key=lambda one: one["factor"] == TOTAL):
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


def _meanings(shown: Iterable[str]) -> Iterator[str]:
    """Yield a line on each word of the tables of one series."""
    yield "usual: the median over every fourth row of a year; usual factors need not multiply"
    yield "percentile: the share of these rows with a smaller value, in percent"
    yield "a usual move: the median size of moves from row to row, two thirds of their deviation"
    yield "share: of the change of the band, where it is 2 % or more"
    yield from (f"{name}: {_MEANINGS[name]}" for name in dict.fromkeys(shown) if name in _MEANINGS)


def _number(value: float, unit: str = "", digits: int = 4) -> str:
    return f"{value:.{digits}g}{unit}" if np.isfinite(value) else ""
