"""What a user should know of series, as values, said in one sentence of each kind."""

import dataclasses
import warnings
from collections.abc import Iterable, Sequence

from forecaster.errors import ForecasterWarning, printable

_GROUPS, _NAMED = 3, 8  # in a sentence: series of which the same is said, and how many of them
_WORDS = {
    "irregular": (
        "the rows of {some} come at no regular times",
        "So each step ahead is a row, and the dates of forecasts are guesses, unless `ingest` or "
        "`fit` reads the rows with --frequency, as named or D for days. If no row means "
        "zero, add them up by hours (h), days (D), weeks (7D) or months (MS) first, in pandas: "
        "wide = frame.pivot_table(index='ds', columns='unique_id', values='y', aggfunc='sum')"
        ".resample('D').sum(min_count=1); filled = wide.fillna(0).where(wide.ffill().notna())",
    ),
    "odd": (
        "the latest row of {some} is at another time than the rows before",
        "Forecasts go on by the rule of the others, which --frequency states for good. If the row "
        "is of a period that is not over, leave it out",
    ),
    "running": (
        "the latest row of {some} is of a period that is not over",
        "It counts as the value of the whole period; if it is not, leave it out",
    ),
    "far": (
        "the latest row of {some} is farther from what was expected than any row before",
        "Forecasts take it as it is: if the value is an error, correct it in the source; if it is "
        "meant, the next rows will confirm it",
    ),
    "resized": (
        "the latest rows of {some} are of another size than all rows before",
        "Forecasts and bands are learned from both sizes. If the unit has changed, multiply the "
        "earlier rows in the source, and read them again",
    ),
    "zeros": (
        "the latest rows of {some} are the first zeros",
        "Forecasts may rise again. Closed? Retire them (`forecaster tickers retire`); if the "
        "zeros mean that nothing is known yet, leave these rows out",
    ),
    "dip": (
        "the past of {some} holds a dip of a season or more",
        "A blend of components counts these rows as missing: season and bands are those of the "
        "others",
    ),
    "unmatched": (
        "future covariates: no number at past rows of {some}",
        "There they count as average, so that little of their effect is learned. Give a number at "
        "every row: fill or interpolate the file (in pandas, "
        "frame.set_index('ds').resample('h').interpolate() for hours). The times must be equal to "
        "those of the series, to the second",
    ),
    "missed": (
        "future covariates: events of {count} series fall on no row, so they count nowhere",
        "Write the time of the row that each of them moves: a session, without a time of day if "
        "rows have none",
    ),
    "stopped": (
        "future covariates: events of {count} series have stopped coming, the latest are",
        "List those to come, too: without them none is expected",
    ),
    "placeholder": (
        "numbers that may stand for missing ones, as no other is below zero: {count} series",
        "They are learned from as they are; leave these cells empty if the numbers are not known",
    ),
    "unconfirmed": ("{count} series jumped at the latest row, which may be an error", ""),
}
# Of stored series, which a command names itself.
_STORED = {
    "retired": ("{count} series {are} retired and not forecast", ""),
    "unadjusted": (
        "prices before a session look unadjusted: {count} series",
        "`forecaster adjust` lists the proposals and applies them; till then bands are wide",
    ),
    "jumped": (
        "{count} series jumped on the latest session, without a split or dividend",
        "If that price is wrong, so is the forecast; the next session will tell",
    ),
    "frozen": (
        "the price of {count} series is the same since the day in brackets",
        "If there is no trade, or the data are no longer brought up to date, bands are too narrow",
    ),
    "late": ("the data of {some} are stale", ""),
    "behind": (
        "{some} {end} before the others, so that forecasts begin with days that are past",
        "`forecaster tickers retire` says that no more rows are to come",
    ),
    "constant": ("{count} series never changed, so that bands have hardly any width", ""),
    "ended": ("{count} series had ended before the fit; each is forecast from its end", ""),
}
# These say more.
_INSTEAD = {"late": ("behind", "ended"), "jumped": ("unadjusted",), "constant": ("frozen",)}


@dataclasses.dataclass(frozen=True)
class Finding:
    """What was found in a series.

    - ``kind``: a word for all findings that are said together
    - ``name``: the series
    - ``said``: what is said of this series, in few words
    - ``rows``: the number of its rows that this is about
    """

    kind: str
    name: str
    said: str = ""
    rows: int = 0

    @property
    def of_latest(self) -> bool:
        """Whether it says that the latest rows may be wrong, which matters to forecasts alone."""
        return self.kind in ("far", "resized", "zeros")

    @property
    def of_stored(self) -> bool:
        """Whether it is about a series of the store, and not about the rows of a panel."""
        return self.kind in _STORED


def say_findings(found: Sequence[Finding], count: int) -> None:
    """Warn once of each kind of finding; ``count``: the number of all series."""
    for sentence in findings_in_words([one for one in found if not one.of_stored], count).values():
        # From here, so that a fit and the forecasts after it say it once.
        warnings.warn(sentence, ForecasterWarning, stacklevel=1)


def findings_in_words(found: Sequence[Finding], count: int) -> dict[str, str]:
    """Return a sentence for each kind of finding; ``count``: the number of all series."""
    sentences: dict[str, str] = {}
    for kind, (before, after) in (_WORDS | _STORED).items():
        said = {one.name for one in found if one.kind in _INSTEAD.get(kind, ())}
        if ones := [one for one in found if one.kind == kind and one.name not in said]:
            are, end = ("is", "ends") if len(ones) == 1 else ("are", "end")
            some = f"{len(ones)} of {count} series"
            text = before.format(some=some, count=len(ones), are=are, end=end)
            sentences[kind] = f"{text}: {_in_short(ones)}" + (f". {after}" if after else "")
    return sentences


def _in_short(ones: Iterable[Finding]) -> str:
    """Return some series with what is said of them, and how many more there are."""
    alike: dict[str, list[str]] = {}
    for one in ones:
        alike.setdefault(one.said, []).append(printable(one.name, lines=False))
    groups = [
        first(names, _NAMED) + (f" ({said})" if said else "") for said, names in alike.items()
    ]
    return first(groups, _GROUPS, sum(map(len, list(alike.values())[_GROUPS:])))


def first(texts: Sequence[str], most: int = _GROUPS, more: int | None = None) -> str:
    """Return the first texts, and how many ``more`` there are, by default those left out."""
    more = len(texts) - most if more is None else more
    return ", ".join([*texts[:most], *([f"and {more:,} more"] if more > 0 else [])])
