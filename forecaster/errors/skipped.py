"""Say why a series was skipped: a value with the numbers in fields, and one sentence for it."""

import dataclasses
import string
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec


class Kind(StrEnum):
    """Reasons to skip a series, each a word for files and frames, and a sentence for people."""

    sentence: str
    parts: tuple[str, ...]

    def __new__(cls, word: str, sentence: str) -> "Kind":
        """Make a kind; ``parts`` are the fields of a :class:`Skipped` that its sentence shows."""
        kind = str.__new__(cls, word)
        kind._value_ = word
        kind.sentence = sentence
        kind.parts = tuple(name for _, name, _, _ in string.Formatter().parse(sentence) if name)
        return kind

    # The series has too few rows.
    TOO_SHORT = "too_short", "{rows} rows; {needed} needed ({detail})"
    TOO_SHORT_TO_FORECAST = (
        "too_short_to_forecast", "{rows} rows; a forecast is made from {needed}",
    )  # fmt: skip
    NO_ROWS = "no_rows", "no rows between {first} and {last}"
    OUTSIDE = "outside", "no rows in that span; there are {first} to {last}"
    MASKED = "masked", "all of its rows were left out"
    BEGINS_LATER = "begins_later", "no rows up to the first cutoff, {first}"
    NO_SCORES = (
        "no_scores", "no cutoff ({first} to {last}) has two rows up to it and one after it",
    )  # fmt: skip
    NO_SCORES_AS_MEMBER = (
        "no_scores_as_member",
        "no cutoff ({first} to {last}) at which it was a member of the universe has two rows up to "
        "it and one after it",
    )
    # Nothing can be learned from the values of the series.
    REPEATED_TIME = "repeated_time", "more than one row for {first}"
    REPEATED_HOUR = (
        "repeated_hour",
        "more than one row for {first}; the end of summer time repeats this hour in many zones. "
        "Give times with their offset and --date-format utc, or one row for the hour",
    )
    NO_NUMBER = "no_number", "column {column!r} holds no number"
    NOT_DATES = "not_dates", "its times are whole numbers; those of most are dates"
    NOT_COUNTED = "not_counted", "its times are dates; those of most are whole numbers"
    INFINITE = (
        "infinite", "{column} is {value:g} on {first}; expected a finite number, or none",
    )  # fmt: skip
    CONSTANT = "constant", "{column} never changes"
    NOT_POSITIVE = (
        "not_positive", "{column} is {value:g} on {first}; a price must be above zero",
    )  # fmt: skip
    NO_LONGER_POSITIVE = (
        "no_longer_positive",
        "{column} is {value:g} on {first}; it had always been above zero when the model was "
        "fitted; fit again",
    )
    TOO_FAR_APART = (
        "too_far_apart",
        "{column} is {value:g} on {first}: its values lie too far apart for computing; look at "
        "them, or divide them",
    )
    NO_LOGARITHM = (
        "no_logarithm", "{column} is {value:g} on {first}, and its logarithm is forecast",
    )  # fmt: skip
    NO_FORECASTS = "no_forecasts", "no forecasts from {detail}"
    OTHER_SPACING = (
        "other_spacing", "{detail}; fit again on these, or forecast from rows as those were",
    )  # fmt: skip
    # The market lacks times that the series has.
    BEFORE_MARKET = "before_market", "the market {market} has no row yet on {first}"
    BEHIND_MARKET = (
        "behind_market",
        "its latest row is of {first}, but the market {market} ends on {last}; bring {market} up "
        "to date",
    )
    # Training failed.
    NOT_FINITE = (
        "not_finite",
        "its forecasts on the validation span are not finite numbers; look at its values",
    )
    FORECAST_NOT_FINITE = (
        "forecast_not_finite",
        "the forecast is not finite, so the model or the latest values are damaged; look at the "
        "series, or fit again",
    )
    NOT_TRAINED = "not_trained", "{detail}"
    # The model has no network for the series.
    NO_NETWORK = "no_network", "the model has no network for it"
    SKIPPED_BY_FIT = "skipped_by_fit", "was skipped by the fit: {detail}"
    NOT_IN_MODEL = "not_in_model", "not among the {detail}"
    # The data of the series are missing.
    NOT_LOADED = "not_loaded", "{detail}"
    UNREADABLE = "unreadable", "{detail}"
    NOT_STORED = "not_stored", "no longer stored; run `forecaster ingest --source {detail}` again"
    LATE = "late", "the number of sessions that it lacks is {rows}; --max-late allows {needed}"
    OTHER = "other", "{detail}"


@dataclasses.dataclass(frozen=True)
class Skipped:
    """Why one series was skipped; ``str()`` is the sentence.

    - ``rows``, ``needed``: how many rows the series has, and how many it needs
    - ``column``, ``value``: the column that is at fault, and the number in it
    - ``market``: the declared index that is at fault
    - ``first``, ``last``: the time of a row, or the first and the last time of a span
    - ``detail``: text, for reasons without numbers

    Raises ValueError when a field that the sentence shows is missing.
    """

    kind: Kind
    rows: int | None = None
    needed: int | None = None
    column: str | None = None
    value: float | None = None
    market: str | None = None
    first: str | None = None
    last: str | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        if missing := [name for name in self.kind.parts if getattr(self, name) is None]:
            raise ValueError(f"{self.kind.value}: expected {', '.join(missing)}")

    def __str__(self) -> str:
        return self.kind.sentence.format(**{name: getattr(self, name) for name in self.kind.parts})

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set, and the sentence as ``reason``."""
        fields = {name: its for name, its in vars(self).items() if its is not None}
        return {**fields, "kind": self.kind.value, "reason": str(self)}


def skipped_to_json(skipped: Mapping[str, Skipped]) -> dict[str, dict[str, Any]]:
    """Return the reasons by series as plain values; see :meth:`Skipped.to_json`."""
    return {name: reason.to_json() for name, reason in skipped.items()}


def skipped_from_json(stored: Mapping[str, Any]) -> dict[str, Skipped]:
    """Read the result of :func:`skipped_to_json`. Raises ValueError for anything else."""
    skipped: dict[str, Skipped] = {}
    for name, reason in stored.items():
        try:
            skipped[name] = msgspec.convert(reason, Skipped)
        except ValueError as error:
            raise ValueError(f"skipped: {name!r}: {error}") from error
    return skipped
